"""Sessions that the tasks of an event loop share."""

import asyncio
import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import test_store
from support import Server
from test_store import fresh

import kelix
from kelix.aio import AsyncSession

T = TypeVar("T")
SERVER: Server
TCP: str


def setUpModule() -> None:
    global SERVER, TCP
    SERVER = test_store.SERVER = Server("--shards", "2", "--listen", "0")
    TCP = kelix.connect(SERVER.directory).statistics()["tcp"]


def tearDownModule() -> None:
    SERVER.close()


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Runs a test in a loop, with a watchdog. Errors that nobody looks at are failures."""

    async def watched() -> list[dict[str, Any]]:
        unseen: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        await asyncio.wait_for(main(), 90)
        return unseen

    unseen = asyncio.run(watched())
    assert not unseen, unseen


class Proxy:
    """Stands between a client and a server, and breaks their connections."""

    def __init__(self, server: str) -> None:
        host, port = server.rsplit(":", 1)
        self.server = (host.strip("[]"), int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.ends: list[socket.socket] = []
        self.swallows = False
        self.swallowed = 0
        self.threads: list[threading.Thread] = []
        self._begin(self._accept)

    def _begin(self, work: Callable[..., None], *ends: socket.socket) -> None:
        self.threads.append(threading.Thread(target=work, args=ends, daemon=True))
        self.threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.server)
                self.ends += [client, server]
                self._begin(self._forward, client, server)
                self._begin(self._forward, server, client)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                if self.swallows:
                    self.swallowed += len(data)
                else:
                    target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def swallow(self) -> None:
        """From now on nothing arrives."""
        self.swallows = True

    def break_all(self) -> None:
        """Breaks all connections, and lets through what comes over others."""
        self.swallows = False
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.break_all()
        for thread in self.threads:
            thread.join()
        for end in (self.listener, *self.ends):
            end.close()


class Connections:
    """In place of a queue: connects again when its first descriptor is readable; answers by the second."""

    is_detached = False

    def __init__(self) -> None:
        self.pipes = [os.pipe(), os.pipe()]
        self.past_connections = 0
        self.numbers: list[int] = []
        self.number = 0

    def submit(self, _: Any, number: int) -> None:
        self.numbers.append(number)

    def make_readable(self, connection: int) -> None:
        os.write(self.pipes[connection][1], b"x")

    def poll(self) -> list[Any]:
        here = self.fileno()
        if not select.select([here], [], [], 0)[0]:
            return []
        os.read(here, 1)
        if self.past_connections == 0:
            self.past_connections = 1
            return []
        self.number = self.numbers.pop()
        return [self]

    def result(self) -> str:
        return "an answer"

    def fileno(self) -> int:
        return self.pipes[self.past_connections][0]

    def __len__(self) -> int:
        return len(self.numbers)

    def close(self) -> None:
        pass

    def __enter__(self) -> "Connections":
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (*self.pipes[0], *self.pipes[1]):
            os.close(descriptor)


async def until_idle(session: AsyncSession) -> None:
    """Waits until nothing is under way any more, also of what was cancelled."""
    queue: Any = session._queue
    while len(queue):
        await asyncio.sleep(0.005)


class Waits(Exception):
    """A coroutine does not end at once."""


def at_once(coroutine: Any) -> Any:
    """The result of a coroutine that ends without ever waiting."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    coroutine.close()
    raise Waits


class Tasks(unittest.TestCase):
    def stores(self, **options: Any) -> Iterator[kelix.Store]:
        for fabric, address in (("shm", SERVER.directory), ("tcp", TCP)):
            with self.subTest(fabric), kelix.connect(address, **options) as store:
                yield store

    def test_operations(self) -> None:
        for store in self.stores():

            async def main() -> None:
                table = store.table(fresh().name, key=str, value=kelix.json, kind="ordered")
                async with store.aio() as session:
                    version = await session.put(table, "k", None)
                    self.assertEqual(await session.get(table, "k", "default"), None)
                    self.assertEqual(await session.get(table, "none", "default"), "default")
                    self.assertIsNone(await session.get(table, "none"))
                    with self.assertRaises(kelix.VersionMismatch) as raised:
                        await session.put(table, "k", 1, expected=None)
                    self.assertEqual(raised.exception.found, version)
                    version = await session.put(table, "k", [1], expected=version)
                    self.assertEqual(await session.compare_and_set(table, "k", 1, 2), (False, version))
                    await session.put(table, "ulm", attributes={"country": b"de"})
                    await session.put(table, "bob", 1, links={"city": (table, "ulm")}, flags=3)
                    bob = await session.item(table, "bob")
                    assert bob is not None
                    city = await session.follow(bob, "city")
                    assert city is not None
                    self.assertEqual((bob.flags, city.attributes), (3, {"country": b"de"}))
                    with self.assertRaises(kelix.NoSuchAttribute):
                        await session.follow(city, "city")
                    with self.assertRaises(kelix.VersionMismatch):
                        await session.delete(table, "k", expected=1)
                    self.assertTrue(await session.delete(table, "k", expected=version))
                    self.assertFalse(await session.delete(table, "k"))
                    self.assertFalse(await session.delete(table, "k", expected=version))
                    numbers = [f"n{number:04}" for number in range(1000)]
                    await asyncio.gather(*(session.put(table, key, key) for key in numbers))
                    pairs = [pair async for pair in session.scan(table, prefix="n")]
                    self.assertEqual(pairs, [(key, key) for key in numbers])
                    found = [key async for key, _ in session.scan(table, prefix="n", backwards=True, limit=2)]
                    self.assertEqual(found, ["n0999", "n0998"])
                    self.assertEqual(await session.multi_get(table, [*numbers, "none"]), [*numbers, None])
                    self.assertEqual(len(session), 0)

            run(main)

    def test_a_get_in_shared_memory_is_done_at_once(self) -> None:
        store = kelix.connect(SERVER.directory)
        table = store[fresh().name]
        table.update({b"k": b"v", b"long": bytes(100_000)})

        async def main() -> None:
            async with store.aio() as session:
                # The first get opens the table, and maps memory.
                self.assertEqual(await session.get(table, b"k"), b"v")
                waited = 0
                for _ in range(200):
                    for get, wanted in (
                        (session.get(table, b"k"), b"v"),
                        (session.multi_get(table, [b"k"]), [b"v"]),
                    ):
                        try:
                            self.assertEqual(at_once(get), wanted)
                        except Waits:
                            waited += 1
                # A session has to look around from time to time.
                self.assertLess(waited, 40)
                self.assertEqual(await session.get(table, b"long"), bytes(100_000))
                self.assertEqual(await session.get(table, b"none", 7), 7)

        run(main)

    def test_a_get_at_once_does_not_hold_up_what_is_under_way(self) -> None:
        store = kelix.connect(SERVER.directory)
        table = store[fresh().name]
        table[b"k"] = b"v"

        async def main() -> None:
            async with store.aio() as session:
                # Only the descriptor tells of answers: a timer that came first would hide that it does not.
                session._interval = 3600
                for number in range(300):
                    put = asyncio.ensure_future(session.put(table, b"%d" % number, b"w"))
                    while not put.done():
                        self.assertEqual(await session.get(table, b"k"), b"v")
                        await asyncio.sleep(0)

        run(main)

    def test_many_tasks_share_one_session(self) -> None:
        for store in self.stores():

            async def main() -> None:
                table = store[fresh().name]
                async with store.aio() as session:
                    session._interval = 3600

                    async def task(number: int) -> None:
                        key = b"%d" % number
                        for round in range(5):
                            await session.put(table, key, b"%d" % round)
                            self.assertEqual(await session.get(table, key), b"%d" % round)

                    await asyncio.gather(*map(task, range(500)))
                    self.assertEqual(len(session), 0)
                    await until_idle(session)
                    self.assertIsNone(session._watched)
                self.assertEqual(len(table), 500)

            run(main)

    def test_a_task_that_is_cancelled_leaves_nothing_behind(self) -> None:
        with Server("--listen", "0") as server:
            for fabric in ("shm", "tcp"):

                async def main() -> None:
                    store = kelix.connect(server.directory, fabric=fabric, timeout=30)
                    table = store["t"]
                    descriptors = len(os.listdir("/proc/self/fd"))
                    async with store.aio() as session:
                        await session.put(table, b"k", b"v")
                        server.stop_still()
                        tasks = [
                            asyncio.ensure_future(session.put(table, b"%d" % number, b"v"))
                            for number in range(50)
                        ]
                        late = asyncio.ensure_future(session.put(table, b"late", b"v"))
                        await asyncio.sleep(0)
                        [task.cancel() for task in tasks]
                        ended = await asyncio.gather(*tasks, return_exceptions=True)
                        self.assertEqual({type(error) for error in ended}, {asyncio.CancelledError})
                        server.go_on()
                        self.assertGreater(await late, 0)
                        await until_idle(session)
                        self.assertEqual((len(session), session._waiting, session._watched), (0, {}, None))
                        self.assertEqual(await session.get(table, b"k"), b"v")
                    store.close()
                    self.assertLessEqual(len(os.listdir("/proc/self/fd")), descriptors)

                run(main)

    def test_a_server_that_is_killed_fails_all(self) -> None:
        for fabric in ("shm", "tcp"):
            with Server("--listen", "0") as server:

                async def main() -> None:
                    store = kelix.connect(server.directory, fabric=fabric, timeout=30)
                    table = store["t"]
                    async with store.aio() as session:
                        await session.put(table, b"k", b"v")
                        server.stop_still()
                        tasks = [
                            asyncio.ensure_future(session.put(table, b"%d" % number, b"v"))
                            for number in range(50)
                        ]
                        await asyncio.sleep(0.02)
                        server.kill()
                        ended = await asyncio.gather(*tasks, return_exceptions=True)
                        self.assertEqual({getattr(error, "kind", error) for error in ended}, {"unavailable"})
                        self.assertIsNone(session._watched)

                run(main)

    def test_what_is_not_answered_ends_in_time(self) -> None:
        """Nothing becomes readable then."""
        for fabric in ("shm", "tcp"):
            with Server("--listen", "0") as server:

                async def main() -> None:
                    store = kelix.connect(server.directory, fabric=fabric, timeout=0.4)
                    table = store["t"]
                    async with store.aio() as session:
                        await session.put(table, b"k", b"v")
                        server.stop_still()
                        with self.assertRaises(kelix.errors.TimedOut) as raised:
                            await session.put(table, b"k", b"w")
                        self.assertEqual(raised.exception.effect, "unknown")
                        server.go_on()

                run(main)

    def test_another_server_after_the_first(self) -> None:
        for fabric in ("shm", "tcp"):
            with tempfile.TemporaryDirectory() as directory:
                server = Server("--listen", "0", directory=directory)
                try:

                    async def main() -> None:
                        nonlocal server
                        store = kelix.connect(directory, fabric=fabric, timeout=5, retry_for=60)
                        table = store["t"]
                        async with store.aio() as session:
                            await session.put(table, b"k", b"v")
                            server.kill()
                            lost = asyncio.ensure_future(session.put(table, b"k", b"w"))
                            while not session._queue.is_detached:
                                await asyncio.sleep(0.005)
                            # The descriptor of a connection that is over is readable all the time.
                            self.assertIsNone(session._watched)
                            server = Server("--listen", "0", directory=directory)
                            await asyncio.gather(lost, return_exceptions=True)
                            while True:
                                try:
                                    await session.put(table, b"k", b"x")
                                    break
                                except kelix.Error as error:
                                    self.assertTrue(
                                        error.retry or error.kind in ("no such table", "view expired"), error
                                    )
                            self.assertGreater(session._queue.past_connections, 0)
                            await asyncio.gather(
                                *(session.put(table, b"%d" % number, b"y") for number in range(100))
                            )
                            self.assertEqual(await session.get(table, b"99"), b"y")

                    run(main)
                finally:
                    server.close()

    def test_a_connection_that_breaks_while_tasks_wait(self) -> None:
        """The put goes on over the next connection."""
        with Proxy(TCP) as proxy:

            async def main() -> None:
                store = kelix.connect(proxy.address, timeout=20, retry_for=60)
                table = store[fresh().name]
                async with store.aio() as session:
                    await session.put(table, b"k", b"v")
                    await until_idle(session)
                    session._interval = 3600
                    proxy.swallow()
                    put = asyncio.ensure_future(session.put(table, b"k", b"w"))
                    while not proxy.swallowed:
                        await asyncio.sleep(0.005)
                    proxy.break_all()
                    self.assertGreater(await put, 0)
                    self.assertGreater(session._queue.past_connections, 0)
                self.assertEqual(table[b"k"], b"w")

            run(main)

    def test_the_loop_watches_the_descriptor_of_the_connection_there_is(self) -> None:
        """A poll connects again, so that the answer comes by another descriptor; and no timer helps."""
        store = kelix.connect(SERVER.directory)

        async def main() -> None:
            async with store.aio() as session:
                session._queue.close()
                with Connections() as queue:
                    session._queue, session._interval = queue, 3600
                    future = session._submit(queue.submit)
                    await asyncio.sleep(0)
                    self.assertEqual(session._watched[1], 0)
                    queue.make_readable(0)
                    while not queue.past_connections:
                        await asyncio.sleep(0.001)
                    self.assertEqual(session._watched[1], 1)
                    queue.make_readable(1)
                    self.assertEqual(await future, "an answer")
                    self.assertIsNone(session._watched)

        run(main)

    def test_a_session_that_is_closed_while_tasks_wait(self) -> None:
        with Server() as server:

            async def main() -> None:
                store = kelix.connect(server.directory, timeout=30)
                table = store["t"]
                async with store.aio() as session:
                    await session.put(table, b"k", b"v")
                    server.stop_still()
                    tasks = [
                        asyncio.ensure_future(session.put(table, b"%d" % number, b"v")) for number in range(5)
                    ]
                    await asyncio.sleep(0.02)
                ended = await asyncio.gather(*tasks, return_exceptions=True)
                server.go_on()
                self.assertEqual(
                    [(type(error), error.effect) for error in ended], [(kelix.Unavailable, "unknown")] * 5
                )
                session.close()
                with self.assertRaises(RuntimeError):
                    await session.get(table, b"k")

            run(main)

    def test_programs_without_a_loop_do_not_import_asyncio(self) -> None:
        program = "import kelix, sys; sys.exit('asyncio' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-P", "-c", program]).returncode, 0)

    def test_bad_input(self) -> None:
        store = kelix.connect(SERVER.directory)

        def fail(_: Any) -> Any:
            raise ZeroDivisionError

        table = store.create(fresh().name)
        table[b"k"] = b"v"
        broken = store.table(table.name, value=kelix.Codec(fail, fail))
        session = store.aio()
        with self.assertRaisesRegex(RuntimeError, "not open"):
            asyncio.run(session.get(table, b"k"))

        async def main() -> None:
            async with session:
                for use, error in (
                    (session.put(table, "text", b"v"), TypeError),
                    (session.put(table, b"k"), TypeError),
                    (session.get(table, bytes((64 << 10) + 1)), kelix.InvalidArgument),
                    (session.get(store["no.such.table"], b"k"), kelix.NoSuchTable),
                    (session.get(broken, b"k"), ZeroDivisionError),
                    (session.put(broken, b"k", 1), ZeroDivisionError),
                    (session.multi_get(table, [b"k", "text"]), TypeError),
                    (session.__aenter__(), RuntimeError),
                ):
                    with self.assertRaises(error):
                        await use
                self.assertEqual(len(session), 0)

                def elsewhere() -> None:
                    with self.assertRaisesRegex(RuntimeError, "another event loop"):
                        asyncio.run(session.get(table, b"k"))

                await asyncio.to_thread(elsewhere)

        run(main)


if __name__ == "__main__":
    unittest.main()
