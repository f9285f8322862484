"""Operations that are submitted: by queues, and by tasks of asyncio."""

import gc
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import test_store
from support import Server
from test_store import fresh

import kelix

SERVER: Server
TCP: str


def setUpModule() -> None:
    global SERVER, TCP
    SERVER = test_store.SERVER = Server("--shards", "2", "--listen", "0")
    TCP = kelix.connect(SERVER.directory).statistics()["tcp"]


def tearDownModule() -> None:
    SERVER.close()


def stores(**options: Any) -> Iterator[kelix.Store]:
    """A store in shared memory, and one over TCP."""
    for address in (SERVER.directory, TCP):
        with kelix.connect(address, **options) as store:
            yield store


def poll_all(queue: kelix.Queue, most: int | None = None) -> dict[int, kelix.Completion]:
    """Polls, with waits for the descriptor, until all has ended."""
    ended: dict[int, kelix.Completion] = {}
    until = time.monotonic() + 60
    while len(queue):
        completions = queue.poll(most)
        assert most is None or len(completions) <= most
        ended.update((completion.number, completion) for completion in completions)
        if not completions and len(queue):
            select.select([queue], [], [], 0.25)
        assert time.monotonic() < until
    return ended


class Queues(unittest.TestCase):
    def test_operations(self) -> None:
        for store in stores():
            table = store.table(fresh().name, key=str, value=kelix.json, kind="ordered")
            with store.queue() as queue:
                self.assertEqual((queue.poll(), len(queue), bool(queue)), ([], 0, True))
                for number in range(300):
                    queue.put(table, f"{number:04}", [number], number)
                self.assertEqual(len(queue), 300)
                ended = poll_all(queue, 7)
                self.assertEqual(sorted(ended), list(range(300)))
                version = ended[5].result()
                self.assertEqual(table.item("0005").version, version)
                queue.get(table, "0005", 1)
                queue.get(table, "none", 2)
                queue.item(table, "0005", 3)
                queue.compare_and_set(table, "0005", version, [], 4)
                queue.compare_and_set(table, "0006", None, [], 2**64 - 1)
                queue.compare_and_delete(table, "0007", 1, 6)
                queue.delete(table, "0008", 7)
                queue.delete(table, "none", 8)
                ended = poll_all(queue)
                self.assertEqual((ended[1].result(), ended[2].result(), ended[1].error), ([5], None, None))
                self.assertEqual(ended[3].result().key, b"0005")
                self.assertEqual((ended[4].result().done, ended[2**64 - 1].result().done), (True, False))
                self.assertEqual(ended[6].result().done, False)
                self.assertEqual((ended[7].result(), ended[8].result()), (True, False))

    def test_items_links_and_pages(self) -> None:
        for store in stores():
            table = store.table(fresh().name, kind="ordered")
            table.update((b"%04d" % number, b"v") for number in range(3000))
            with store.queue() as queue:
                queue.put_item(table, b"ulm", 1, attributes={"country": b"de"})
                poll_all(queue)
                queue.put_item(
                    table, b"bob", 2, b"Bob", links={"city": (table, b"ulm")}, flags=7, expected=None
                )
                queue.put_item(table, b"ulm", 3, b"x", expected=None)
                ended = poll_all(queue)
                self.assertEqual((ended[2].result().done, ended[3].result().done), (True, False))
                bob = table.item(b"bob")
                self.assertEqual((bob.value, bob.flags), (b"Bob", 7))
                queue.follow(bob, "city", 4)
                self.assertEqual(poll_all(queue)[4].result().attributes, {"country": b"de"})
                with self.assertRaises(kelix.NoSuchAttribute):
                    queue.follow(bob, "nothing", 5)
                queue.scan(table, 6, start=b"0100", stop=b"2950")
                page, keys = poll_all(queue)[6].result(), []
                while True:
                    keys += [key for key, _ in page.pairs()]
                    if page.is_last:
                        break
                    queue.next_page(page, 7)
                    page = poll_all(queue)[7].result()
                self.assertEqual(keys, [b"%04d" % number for number in range(100, 2950)])
                with self.assertRaises(kelix.InvalidArgument):
                    queue.next_page(page, 8)

    def test_values_longer_than_a_message(self) -> None:
        for store in stores(timeout=30):
            table = store[fresh().name]
            value = os.urandom(3 << 20)
            with store.queue() as queue:
                queue.put(table, b"long", value, 1)
                queue.put(table, b"short", b"v", 2)
                self.assertEqual({type(ended.result()) for ended in poll_all(queue).values()}, {int})
                queue.get(table, b"long", 3)
                self.assertEqual(poll_all(queue)[3].result(), value)

    def test_a_table_that_was_dropped_and_made_again(self) -> None:
        for store in stores():
            table = store[fresh().name]
            with store.queue() as queue, kelix.connect(SERVER.directory) as other:
                queue.put(table, b"k", b"old", 1)
                poll_all(queue)
                other.drop(table.name)
                # Whatever the first writes after that come to: the table is looked up again, and made.
                until = time.monotonic() + 30
                while table.name not in other or other[table.name].get(b"k") != b"new":
                    self.assertLess(time.monotonic(), until)
                    try:
                        queue.put(table, b"k", b"new", 2)
                        error = poll_all(queue)[2].error
                    except kelix.NoSuchTable as refused:
                        error = refused
                    if error is not None:
                        self.assertIsInstance(error, (kelix.NoSuchTable, kelix.errors.ViewExpired))

    def test_bad_input(self) -> None:
        store = kelix.connect(SERVER.directory)
        table = store.create(fresh().name)
        with store.build("queued", {"q": "hash"}) as build:
            build["q"][b"k"] = b"v"
        queue = store.queue()
        for use in (
            lambda: queue.get(table, bytes((64 << 10) + 1), 1),
            lambda: queue.get(fresh(), b"k", 1),
            lambda: queue.get(store.view("queued")["q"], b"k", 1),
            lambda: queue.put_item(table, b"k", 1, b"v", expires_in=-1),
        ):
            with self.assertRaises(kelix.InvalidArgument):
                use()
        for use in (
            lambda: queue.get(table, "text", 1),
            lambda: queue.get({}, b"k", 1),
            lambda: queue.get(table, b"k", "1"),
            lambda: queue.put(table, b"k", None, 1),
            lambda: queue.put_item(table, b"k", 1),
            lambda: pickle.dumps(queue),
        ):
            with self.assertRaises(TypeError):
                use()
        for number in (-1, 2**64):
            with self.assertRaises(OverflowError):
                queue.get(table, b"k", number)
        with self.assertRaises(kelix.NoSuchTable):
            queue.get(store["no.such.table"], b"k", 1)
        self.assertEqual(len(queue), 0)
        queue.close()
        queue.close()
        for use in (
            lambda: queue.poll(),
            lambda: len(queue),
            lambda: queue.get(table, b"k", 1),
            queue.fileno,
        ):
            with self.assertRaisesRegex(kelix.InvalidArgument, "the queue is closed"):
                use()
        other = store.queue()
        store.close()
        with self.assertRaisesRegex(kelix.InvalidArgument, "the store is closed"):
            other.poll()
        other.close()

    def test_a_second_thread_is_refused(self) -> None:
        """The first one stands in a poll that sends a long value to a server which stands still."""
        with Server() as server, kelix.connect(server.directory, timeout=20) as store:
            table = store["t"]
            table[b"k"] = b"v"
            with store.queue() as queue:
                queue.put(table, b"long", bytes(8 << 20), 1)
                server.stop_still()
                polling = threading.Thread(target=lambda: poll_all(queue))
                polling.start()
                refused = None
                until = time.monotonic() + 10
                while refused is None and time.monotonic() < until:
                    try:
                        len(queue)
                    except kelix.InvalidArgument as error:
                        refused = str(error)
                server.go_on()
                polling.join(60)
                self.assertIn("another thread is using this queue", refused or "")
                self.assertEqual(len(queue), 0)

    def test_a_signal_ends_a_poll_and_the_next_one_has_what_it_brought(self) -> None:
        program = """
import select, sys, kelix
store = kelix.connect(sys.argv[1], timeout=60)
table = store["t"]
table[b"k"] = b"v"
queue = store.queue()
queue.put(table, b"long", bytes(8 << 20), 7)
print("ready", flush=True)
sys.stdin.readline()
try:
    queue.poll()
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.readline()
ended = []
while len(queue):
    ended += queue.poll()
    if not ended:
        select.select([], [], [], 0.01)
print([completion.number for completion in ended], ended[0].error, flush=True)
"""
        with Server() as server:
            command = [sys.executable, "-P", "-c", program, server.directory]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdin and child.stdout
                self.assertEqual(child.stdout.readline(), "ready\n")
                server.stop_still()
                child.stdin.write("\n")
                child.stdin.flush()
                # The thread that waits in place of the main thread says that the poll has begun.
                tasks = Path(f"/proc/{child.pid}/task")
                until = time.monotonic() + 60
                while all((task / "comm").read_text() != "kelix-wait\n" for task in tasks.iterdir()):
                    self.assertLess(time.monotonic(), until)
                    time.sleep(0.001)
                child.send_signal(signal.SIGINT)
                self.assertEqual(child.stdout.readline(), "interrupted\n")
                server.go_on()
                child.stdin.write("\n")
                child.stdin.flush()
                self.assertEqual((child.stdout.readline(), child.wait(60)), ("[7] None\n", 0))

    def test_a_child_is_refused(self) -> None:
        for store in stores():
            table = store[fresh().name]
            table[b"k"] = b"v"
            queue = store.queue()
            queue.get(table, b"k", 1)
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    for use in (queue.poll, queue.fileno, lambda: queue.get(table, b"k", 2)):
                        try:
                            use()
                        except kelix.errors.Forked:
                            continue
                        os._exit(2)
                    queue.close()
                    with store.queue() as own:
                        own.get(table, b"k", 3)
                        status = 0 if poll_all(own)[3].result() == b"v" else 3
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            # The parent's goes on.
            self.assertEqual(poll_all(queue)[1].result(), b"v")
            queue.close()

    def test_a_server_that_is_killed_and_another_one(self) -> None:
        for fabric in ("shm", "tcp"):
            with tempfile.TemporaryDirectory() as directory:
                server = Server("--listen", "0", directory=directory)
                try:
                    store = kelix.connect(directory, fabric=fabric, timeout=0.5)
                    patient = kelix.connect(directory, fabric=fabric, timeout=5, retry_for=30)
                    table = store["t"]
                    table[b"k"] = b"v"
                    with store.queue() as queue, patient.queue() as other:
                        before = (other.fileno(), other.past_connections)
                        queue.put(table, b"k", b"v", 0)
                        other.put(patient["t"], b"k", b"v", 0)
                        self.assertIsNone(poll_all(queue)[0].error or poll_all(other)[0].error)
                        server.kill()
                        queue.put(table, b"k", b"w", 1)
                        error = poll_all(queue)[1].error
                        assert error is not None
                        self.assertIn(error.kind, ("unavailable", "timed out"), fabric)
                        server = Server("--listen", "0", directory=directory)
                        until, ended = time.monotonic() + 30, None
                        while ended is None or ended.error is not None:
                            self.assertTrue(
                                ended is None or ended.error.retry or ended.error.kind == "no such table"
                            )
                            self.assertLess(time.monotonic(), until)
                            other.put(patient["t"], b"k", b"x", 2)
                            ended = poll_all(other)[2]
                        self.assertGreater(other.past_connections, before[1])
                        self.assertEqual(patient["t"][b"k"], b"x")
                        select.select([other], [], [], 0)
                finally:
                    server.close()

    def test_a_queue_that_nobody_closes(self) -> None:
        for store in stores():
            table = store[fresh().name]
            table[b"k"] = b"v"
            for _ in range(20):
                queue = store.queue()
                queue.get(table, b"k", 1)
            del queue
            gc.collect()
            self.assertEqual(table[b"k"], b"v")


if __name__ == "__main__":
    unittest.main()
