"""Stores and tables: what a program does with them."""

import array
import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any

from support import Server

import kelix

SERVER: Server


def setUpModule() -> None:
    global SERVER
    SERVER = Server("--shards", "2")


def tearDownModule() -> None:
    SERVER.close()


class Names:
    number = 0


def fresh(kind: str = "hash", **codecs: Any) -> Any:
    """A table that no other test has."""
    Names.number += 1
    return kelix.connect(SERVER.directory).table(f"t{os.getpid()}.{Names.number}", kind=kind, **codecs)


def square(table: Any, number: int) -> bytes:
    """In another process."""
    value = b"%d" % (number * number)
    table[b"%d" % number] = value
    return bytes(table[b"%d" % number])


class Mappings(unittest.TestCase):
    def test_the_first_write_makes_a_table_and_a_read_does_not(self) -> None:
        store = kelix.connect(SERVER.directory)
        table = store["made.by.a.write"]
        for read in (lambda: table[b"k"], lambda: table.get(b"k"), lambda: b"k" in table, lambda: len(table)):
            with self.assertRaises(kelix.NoSuchTable) as raised:
                read()
            self.assertNotIsInstance(raised.exception, KeyError)
        self.assertNotIn("made.by.a.write", store)
        table[b"k"] = b"v"
        self.assertIn("made.by.a.write", store)
        self.assertEqual((table[b"k"], table.kind), (b"v", "hash"))

    def test_kinds(self) -> None:
        for kind in ("hash", "ordered", "numbers", "inline"):
            table = fresh(kind)
            table[bytes(8)] = b"12345678"
            self.assertEqual((table.kind, table[bytes(8)]), (kind, b"12345678"))
        store = kelix.connect(SERVER.directory)
        store.create("of.one.kind", "ordered")
        with self.assertRaises(kelix.InvalidArgument):
            store.table("of.one.kind", kind="hash")[b"k"] = b"v"
        with self.assertRaises(kelix.InvalidArgument):
            store.table("t", kind="btree")

    def test_values_of_all_lengths(self) -> None:
        table = fresh()
        for length in (0, 1, 4095, 4096, 4097, 70_001, 1 << 20, (1 << 20) + 1, 5 << 20):
            value = os.urandom(length)
            table[b"k"] = value
            self.assertEqual(table[b"k"], value)
            self.assertEqual(table.get(b"k"), value)
            self.assertEqual(table.get_range(b"k", 0, 10), value[:10])
            self.assertEqual(table.get_range(b"k", length // 2, 1 << 40), value[length // 2 :])
            self.assertEqual(table.get_range(b"k", length + 5, 7), b"")
        self.assertIsNone(table.get_range(b"none", 0, 1))

    def test_gets_into_buffers(self) -> None:
        for length in (0, 1, 4097, 1 << 20, (1 << 20) + 1):
            table, value = fresh(), os.urandom(length)
            table[b"k"] = value
            self.assertEqual((table.value_bytes(b"k"), table.value_bytes(b"none")), (length, None))
            for buffer in (bytearray(length + 3), array.array("B", bytes(length + 3))):
                self.assertEqual(table.get_into(b"k", buffer), length)
                self.assertEqual(bytes(buffer), value + bytes(3))
                self.assertIsNone(table.get_into(b"none", buffer))
            part = bytearray(length + 8)
            self.assertEqual(table.get_into(b"k", memoryview(part)[4 : 4 + length]), length)
            self.assertEqual(bytes(part), bytes(4) + value + bytes(4))

    def test_items_of_many_keys(self) -> None:
        table = fresh(key=str)
        table.update((f"{number}", b"%d" % number) for number in range(700))
        found = table.multi_item([f"{number}" for number in range(0, 1400, 7)])
        self.assertEqual(
            [item and item.value for item in found[:101]],
            [b"%d" % number for number in range(0, 700, 7)] + [None],
        )
        self.assertEqual(table.multi_item([]), [])

    def test_codecs(self) -> None:
        cases: list[tuple[Any, Any, Any, Any]] = [
            (str, str, "größe", "süß"),
            (str, kelix.json, "k", {"a": [1, None, "x"]}),
            (
                kelix.Codec(pickle.dumps, pickle.loads),
                kelix.Codec(pickle.dumps, pickle.loads),
                (1, "a"),
                {2, 3},
            ),
            (kelix.raw, kelix.text, b"k", "text"),
            (bytes, int, b"k", 2**64 - 1),
            (int, int, 2**63, 5),
        ]
        for key_codec, value_codec, key, value in cases:
            table = fresh(key=key_codec, value=value_codec)
            table[key] = value
            self.assertEqual((table[key], list(table), list(table.items())), (value, [key], [(key, value)]))
            self.assertEqual(table.multi_get([key, key]), [value, value])
            self.assertEqual(table.pop(key), value)
            self.assertNotIn(key, table)
            table.update({key: value})
            self.assertEqual(dict(table), {key: value})

    def test_numbers_are_in_order(self) -> None:
        for kind in ("numbers", "inline"):
            table = fresh(kind, key=int, value=int)
            table.update((number, number + 1) for number in range(0, 3000, 3))
            self.assertEqual(list(table), list(range(0, 3000, 3)))
            self.assertEqual(list(table.keys(start=7, stop=16)), [9, 12, 15])
            self.assertEqual(list(table.items(backwards=True, limit=2)), [(2997, 2998), (2994, 2995)])
            self.assertEqual(next(reversed(table)), 2997)
            self.assertEqual(len(table.keys(start=30)), 990)
            self.assertEqual(list(table.keys(start=16, stop=7)), [])

    def test_ranges(self) -> None:
        table = fresh("ordered", key=str, value=str)
        table.update({f"{letter}{number:04}": str(number) for letter in "abc" for number in range(700)})
        self.assertEqual(len(table), 2100)
        self.assertEqual(len(list(table.items(prefix="b"))), 700)
        self.assertEqual(
            list(table.values(start="b0690", prefix="b")), [str(number) for number in range(690, 700)]
        )
        self.assertEqual(list(table.keys(stop="a0002")), ["a0000", "a0001"])
        self.assertEqual(list(table.keys(prefix="b", limit=0)), [])
        self.assertIn("b0001", table.keys(prefix="b"))
        self.assertNotIn("a0001", table.keys(prefix="b"))
        self.assertIn(("a0001", "1"), table.items())
        self.assertNotIn(("a0001", "2"), table.items())
        self.assertIn("699", table.values())
        with self.assertRaises(kelix.InvalidArgument):
            list(fresh_full().items(prefix=b"x"))

    def test_iterators_go_on_while_the_table_changes(self) -> None:
        table = fresh("ordered")
        table.update((b"%05d" % number, b"v") for number in range(1000))
        seen = []
        for key in table:
            seen.append(key)
            del table[key]
        self.assertEqual((seen, len(table)), ([b"%05d" % number for number in range(1000)], 0))

    def test_the_last_of_equal_keys_counts(self) -> None:
        table = fresh()
        table.update([(b"k", b"%d" % number) for number in range(3000)])
        self.assertEqual(dict(table), {b"k": b"2999"})

    def test_clear_and_drop(self) -> None:
        table = fresh()
        table.clear()
        table.update((b"%d" % number, b"v") for number in range(2000))
        table.clear()
        self.assertEqual(len(table), 0)
        store = kelix.connect(SERVER.directory)
        one = store["dropped"]
        one[b"k"] = b"old"
        self.assertTrue(store.drop("dropped"))
        self.assertFalse(store.drop("dropped"))
        one[b"l"] = b"new"
        self.assertEqual(dict(one), {b"l": b"new"})


def fresh_full() -> Any:
    table = fresh()
    table[b"k"] = b"v"
    return table


class Items(unittest.TestCase):
    def test_versions(self) -> None:
        table = fresh()
        first = table.put(b"k", b"1", expected=None)
        with self.assertRaises(kelix.VersionMismatch) as raised:
            table.put(b"k", b"2", expected=None)
        self.assertEqual(raised.exception.found, first)
        second = table.put(b"k", b"2", expected=first)
        self.assertEqual(table.compare_and_set(b"k", first, b"3"), (False, second))
        done, third = table.compare_and_set(b"k", second, b"3")
        self.assertTrue(done)
        self.assertEqual(table.item(b"k").version, third)
        with self.assertRaises(kelix.VersionMismatch):
            table.delete(b"k", expected=second)
        self.assertTrue(table.delete(b"k", expected=third))
        self.assertFalse(table.delete(b"k", expected=third))
        self.assertEqual(table.compare_and_set(b"k", third, b"4"), (False, None))

    def test_flags_and_ends(self) -> None:
        table = fresh()
        table.put(b"k", b"v", flags=0xFFFF_FFFF, expires_in=1000)
        item = table.item(b"k")
        self.assertEqual((item.flags, item.value, item.key), (0xFFFF_FFFF, b"v", b"k"))
        self.assertAlmostEqual(item.expires_ns / 1e9, time.time() + 1000, delta=60)
        self.assertIsNone(fresh_full().item(b"k").expires_ns)
        table.put(b"soon", b"v", expires_in=0.05)
        until = time.monotonic() + 20
        while b"soon" in table and time.monotonic() < until:
            time.sleep(0.01)
        self.assertNotIn(b"soon", table)

    def test_attributes_links_and_walks(self) -> None:
        table = fresh(key=str)
        table.put("ulm", attributes={"country": b"de"})
        table.put("ada", b"Lovelace", attributes={"born": b"1815"}, links={"city": (table, "ulm")})
        table.put(
            "bob",
            links={"knows": [(table, "ada"), (table, "none", b"since 1830")], "city": (table.name, "ulm")},
        )
        bob = table.item("bob")
        self.assertEqual(bob.links["knows"][1], kelix.Link(table.name, b"none", b"since 1830"))
        self.assertEqual(bob.follow("city").attributes, {"country": b"de"})
        ada, none = bob.follow_all("knows")
        self.assertEqual((ada.value, none), (b"Lovelace", None))
        with self.assertRaises(kelix.NoSuchAttribute):
            bob.follow("nothing")
        self.assertEqual(sorted(table.attribute_names()), ["born", "city", "country", "knows"])
        walked = [
            (visit.item.key, visit.origin, visit.depth) for visit in table.walk("bob", ["knows", "city"])
        ]
        self.assertEqual(walked[0], (b"bob", None, 0))
        self.assertEqual(sorted(key for key, _, _ in walked), [b"ada", b"bob", b"ulm"])
        walk = table.walk(["bob"], ["knows", "city"], depth=5, depth_first=True)
        walk.turn_back(next(walk))
        self.assertEqual(list(walk), [])
        again = fresh()
        again.put(b"copy", links=bob.links)
        self.assertEqual(again.item(b"copy").links, bob.links)

    def test_setdefault_and_pop_by_several_at_once(self) -> None:
        table = fresh(value=str)
        winners: list[str] = []
        taken: list[str] = []
        together = threading.Barrier(4)

        def work(name: str) -> None:
            for number in range(50):
                winners.append(table.setdefault(b"%d" % number, name))
            together.wait()
            for number in range(50):
                found = table.pop(b"%d" % number, None)
                if found is not None:
                    taken.append(found)

        threads = [threading.Thread(target=work, args=(f"{number}",)) for number in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual((len(winners), len(taken)), (200, 50))


class Processes(unittest.TestCase):
    def test_a_child_opens_sessions_of_its_own(self) -> None:
        store = kelix.connect(SERVER.directory)
        table = fresh_full()
        with store.build("forked", {"f": "hash"}) as build:
            build["f"][b"k"] = b"v"
        view = store.view("forked")["f"]
        self.assertEqual((table[b"k"], view[b"k"]), (b"v", b"v"))
        children = []
        for number in range(4):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    for round in range(200):
                        table[b"%d" % number] = b"%d" % round
                        assert table[b"%d" % number] == b"%d" % round and view[b"k"] == b"v"
                    status = 0
                finally:
                    os._exit(status)
            children.append(child)
        for round in range(200):
            table[b"parent"] = b"%d" % round
            self.assertEqual((table[b"parent"], view[b"k"]), (b"%d" % round, b"v"))
        self.assertEqual([os.waitpid(child, 0)[1] for child in children], [0] * 4)
        self.assertEqual([table[b"%d" % number] for number in range(4)], [b"199"] * 4)

    def test_a_fork_of_which_python_is_not_told(self) -> None:
        """A library in C forks: the first operation finds that out, and is an error; then sessions of its own
        follow.
        """
        store = kelix.connect(SERVER.directory)
        table = fresh_full()
        with store.build("forked.in.c", {"c": "hash"}) as build:
            build["c"][b"k"] = b"v"
        view = store.view("forked.in.c")["c"]
        queue = store.queue()
        self.assertEqual((table[b"k"], view[b"k"], queue.poll()), (b"v", b"v", []))
        uses = (
            lambda: table[b"k"],
            lambda: table.put(b"k", b"v"),
            lambda: table.multi_get([b"k"]),
            lambda: list(table),
            lambda: view[b"k"],
            lambda: queue.poll(),
        )
        for use in uses:
            child = ctypes.PyDLL(None).fork()
            if child == 0:
                status = 1
                try:
                    try:
                        use()
                    except kelix.errors.Forked as error:
                        assert error.retry or use is uses[-1], error
                        table[b"%d" % os.getpid()] = table[b"k"]
                        assert (view[b"k"], len(store.queue().poll())) == (b"v", 0)
                        try:
                            queue.poll()
                        except kelix.errors.Forked:
                            status = 0
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(table[b"%d" % child], b"v")
        # The parent's sessions are what they were.
        self.assertEqual((table[b"k"], view[b"k"], queue.poll()), (b"v", b"v", []))
        queue.close()

    def test_a_fork_while_other_threads_are_at_it(self) -> None:
        table = fresh_full()
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                table[b"k"] = b"v"
                table.multi_get([b"k"] * 100)

        threads = [threading.Thread(target=work) for _ in range(3)]
        [thread.start() for thread in threads]
        try:
            for _ in range(20):
                child = os.fork()
                if child == 0:
                    status = 1
                    try:
                        status = 0 if table[b"k"] == b"v" and len(table) == 1 else 1
                    finally:
                        os._exit(status)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
        finally:
            stop.set()
            [thread.join() for thread in threads]

    def test_pools(self) -> None:
        for method in ("fork", "spawn", "forkserver"):
            table = fresh()
            table[b"here"] = b"v"
            with multiprocessing.get_context(method).Pool(2) as pool:
                found = pool.starmap(square, [(table, number) for number in range(20)])
            self.assertEqual(found, [b"%d" % (number * number) for number in range(20)], method)
            self.assertEqual(len(table), 21)

    def test_pickles(self) -> None:
        table = fresh(key=str, value=kelix.json)
        table["k"] = [1]
        again = pickle.loads(pickle.dumps(table))
        self.assertEqual((again["k"], again.name), ([1], table.name))
        store = pickle.loads(pickle.dumps(kelix.connect(SERVER.directory, timeout=3.0)))
        self.assertEqual(store.table(table.name, key=str)["k"], b"[1]")
        with kelix.connect(SERVER.directory).build("pickled", {"p": "hash"}) as build:
            build["p"][b"k"] = b"v"
        with self.assertRaises(TypeError):
            pickle.dumps(kelix.connect(SERVER.directory).view("pickled"))
        for error in (
            kelix.errors.NoSuchTable("x", True, "unknown", "get", 7),
            kelix.errors.VersionMismatch("y"),
        ):
            copy = pickle.loads(pickle.dumps(error))
            parts = ("kind", "retry", "effect", "operation", "needed_bytes")
            for part in parts:
                self.assertEqual(getattr(copy, part), getattr(error, part))
            self.assertEqual((type(copy), str(copy)), (type(error), str(error)))

    def test_threads(self) -> None:
        table = fresh()
        failures: list[BaseException] = []

        def work(thread: int) -> None:
            try:
                for number in range(500):
                    key = b"%d.%d" % (thread, number)
                    table[key] = key
                    assert table[key] == key
                assert table.multi_get([b"%d.%d" % (thread, number) for number in range(500)]) == [
                    b"%d.%d" % (thread, number) for number in range(500)
                ]
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual((failures, len(table)), ([], 4000))

    def test_an_iterator_that_threads_share(self) -> None:
        table = fresh()
        table.update((b"%d" % number, b"v") for number in range(5000))
        iterator = iter(table)
        seen: list[bytes] = []

        def work() -> None:
            while True:
                try:
                    seen.append(next(iterator))
                except StopIteration:
                    return
                except ValueError:
                    continue

        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(len(seen), 5000)
        self.assertEqual(len(set(seen)), 5000)

    def test_the_interpreter_ends_with_all_in_use(self) -> None:
        program = f"""
import kelix, threading, time
store = kelix.connect({SERVER.directory!r})
table = store["t.end"]
table[b"k"] = b"v"
def work():
    while True:
        table[b"k"]; table[b"k"] = b"v"; list(table.items())
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
build = store.build("ends", {{"e": "hash"}})
iterator = iter(table); next(iterator)
time.sleep(0.3)
print("ends")
"""
        for _ in range(3):
            done = subprocess.run(
                [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60
            )
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "ends\n", ""))


class Datasets(unittest.TestCase):
    def test_a_view_stays_what_it_is(self) -> None:
        store = kelix.connect(SERVER.directory)
        for round in (b"1", b"2"):
            with store.build(
                "shop", {"products": "hash", "orders": kelix.NewTable("ordered", overlay=True)}
            ) as build:
                build["products"].update((b"%d" % number, round) for number in range(3000))
                build.table("orders", key=str).put("o", b"x", links={"of": (build["products"], b"7")})
            self.assertEqual((build.built.items, build.built.links, build.built.dangling), (3001, 1, 0))
            if round == b"1":
                view = store.view("shop")
        self.assertEqual((view["products"][b"7"], store.view("shop")["products"][b"7"]), (b"1", b"2"))
        self.assertEqual(store["products"][b"7"], b"2")
        self.assertEqual(view.table("orders", key=str).item("o").follow("of").value, b"1")
        self.assertEqual((sorted(view), "products" in view), (["orders", "products"], True))
        with self.assertRaises(kelix.NoSuchTable):
            view["nothing"]
        with self.assertRaises(kelix.NoSuchTable):
            store.view("no such dataset")
        found: list[bytes] = []
        thread = threading.Thread(target=lambda: found.append(view["products"][b"7"]))
        thread.start()
        thread.join()
        self.assertEqual(found, [b"1"])
        self.assertTrue(store.drop_dataset("shop"))

    def test_after_an_exception_nothing_is_in_force(self) -> None:
        store = kelix.connect(SERVER.directory)
        with self.assertRaises(ZeroDivisionError):
            with store.build("broken", {"b": "hash"}) as build:
                build["b"][b"k"] = b"v"
                1 / 0
        with self.assertRaises(kelix.NoSuchTable):
            store.view("broken")
        with self.assertRaises(kelix.InvalidArgument):
            build["b"][b"l"] = b"v"
        # Nor is one in the way that was given up, or one that nobody ended.
        store.build("broken", {"b": "hash"})
        gc.collect()
        until = time.monotonic() + 20
        while True:
            try:
                with store.build("broken", {"b": "hash"}) as build:
                    build["b"][b"k"] = b"w"
                break
            except kelix.InvalidArgument:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
        self.assertEqual(store.view("broken")["b"][b"k"], b"w")


class Ends(unittest.TestCase):
    def test_a_closed_store(self) -> None:
        with kelix.connect(SERVER.directory) as store:
            table = store["t.closed"]
            table[b"k"] = b"v"
            iterator = iter(table)
        for use in (
            lambda: table[b"k"],
            lambda: store.tables(),
            lambda: next(iterator),
            lambda: store.view("x"),
        ):
            with self.assertRaises(kelix.InvalidArgument):
                use()
        store.close()

    def test_a_store_that_is_closed_while_threads_use_it(self) -> None:
        store = kelix.connect(SERVER.directory)
        table = store["t.closed.in.use"]
        table[b"k"] = b"v"
        ended: list[str] = []
        began = threading.Barrier(5)

        def work() -> None:
            table[b"k"]
            began.wait()
            try:
                while True:
                    self.assertEqual(table[b"k"], b"v")
                    table[b"k"] = b"v"
            except kelix.InvalidArgument as error:
                ended.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        began.wait()
        time.sleep(0.1)
        store.close()
        [thread.join(20) for thread in threads]
        self.assertEqual(ended, ["session: invalid argument: the store is closed"] * 4)

    def test_a_server_that_is_killed_and_another_one(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            server = Server(directory=directory)
            try:
                table = kelix.connect(directory)["t"]
                table.update((b"%d" % number, b"v") for number in range(2000))
                server.kill()
                # Reads go on from the last state; writes do not.
                self.assertEqual(table[b"7"], b"v")
                self.assertEqual(table.multi_get([b"%d" % number for number in range(2000)]), [b"v"] * 2000)
                with self.assertRaises(ConnectionError) as raised:
                    table[b"k"] = b"v"
                self.assertTrue(raised.exception.retry)
                with self.assertRaises(kelix.Unavailable):
                    kelix.connect(directory)
                server = Server(directory=directory)
                until = time.monotonic() + 20
                while True:
                    try:
                        table[b"k"] = b"new"
                        break
                    except kelix.Error as error:
                        if not error.retry or time.monotonic() > until:
                            raise
                        time.sleep(0.01)
                self.assertEqual(dict(table), {b"k": b"new"})
            finally:
                server.close()

    def test_a_server_that_is_killed_in_a_batch(self) -> None:
        """An operation under way ends, with an error or without; none hangs, and none brings a wrong byte."""
        for what in ("update", "multi_get", "scan", "build", "clear"):
            server = Server()
            try:
                store = kelix.connect(server.directory)
                table = store["t"]
                table.update((b"%d" % number, b"%d" % number) for number in range(2000))
                killer = threading.Timer(0.2, server.process.kill)
                killer.start()
                until = time.monotonic() + 3
                with self.assertRaises((kelix.Error, StopIteration)) as raised:
                    while time.monotonic() < until:
                        if what == "update":
                            table.update((b"%d" % number, b"%d" % number) for number in range(2000))
                        elif what == "multi_get":
                            keys = [b"%d" % number for number in range(4000)]
                            wanted = [b"%d" % number if number < 2000 else None for number in range(4000)]
                            self.assertEqual(table.multi_get(keys), wanted)
                        elif what == "scan":
                            for key, value in table.items():
                                self.assertEqual(key, value)
                        elif what == "build":
                            with store.build("shop", {"products": "hash"}) as build:
                                build["products"].update((b"%d" % number, b"v") for number in range(2000))
                        else:
                            table.clear()
                            table[b"k"] = b"v"
                    # What reads the last state may go on for ever.
                    raise StopIteration
                killer.join()
                if isinstance(raised.exception, kelix.Error):
                    self.assertIn(raised.exception.kind, ("unavailable", "timed out", "superseded"), what)
                # A build has a session of its own.
                self.assertTrue(store.is_detached or what == "build", what)
            finally:
                server.close()

    def test_over_tcp(self) -> None:
        with Server("--listen", "0") as server:
            host = kelix.connect(server.directory).statistics()["tcp"]
            store = kelix.connect(host)
            self.assertEqual(store.fabric, "tcp")
            table = store.table("t", key=str, value=kelix.json, kind="ordered")
            table.update({f"{number:04}": number for number in range(500)})
            self.assertEqual([table[f"{number:04}"] for number in range(500)], list(range(500)))
            self.assertEqual(table.multi_get(["0007", "none"]), [7, None])
            self.assertEqual(list(table.items(prefix="001", limit=2)), [("0010", 10), ("0011", 11)])
            with store.build("shop", {"products": "hash"}) as build:
                build["products"][b"42"] = b"x" * 100_000
            view = store.view("shop")["products"]
            self.assertEqual((view[b"42"], view.get_range(b"42", 7, 2)), (b"x" * 100_000, b"xx"))
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    table["child"] = table["0007"]
                    status = 0 if len(view[b"42"]) == 100_000 else 1
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual((table["child"], len(table)), (7, 501))

    def test_a_signal_ends_a_wait(self) -> None:
        program = """
import sys, time, kelix
table = kelix.connect(sys.argv[1], timeout=60, retry_for=60)["t"]
table[b"k"] = b"v"
print("ready", flush=True)
sys.stdin.readline()
try:
    table[b"k"] = b"w"
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.readline()
# The session that was left behind is not used again.
print(table[b"k"] in (b"v", b"w"), flush=True)
"""
        with Server() as server:
            child = subprocess.Popen(
                [sys.executable, "-P", "-c", program, server.directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert child.stdin and child.stdout
            self.assertEqual(child.stdout.readline(), "ready\n")
            server.stop_still()
            child.stdin.write("\n")
            child.stdin.flush()
            time.sleep(1)
            began = time.monotonic()
            child.send_signal(signal.SIGINT)
            self.assertEqual(child.stdout.readline(), "interrupted\n")
            self.assertLess(time.monotonic() - began, 20)
            server.go_on()
            child.stdin.write("\n")
            child.stdin.flush()
            self.assertEqual((child.stdout.readline(), child.wait(60)), ("True\n", 0))
            child.stdin.close()
            child.stdout.close()

    def test_long_patience(self) -> None:
        """Operations of the main thread are then done by another one."""
        store = kelix.connect(SERVER.directory, timeout=30, retry_for=30)
        table = store[f"patient{os.getpid()}"]
        table.update((b"%d" % number, b"v") for number in range(100))
        self.assertEqual((len(table), len(list(table.items())), table[b"7"]), (100, 100, b"v"))
        with store.build("patient", {"waits": "hash"}) as build:
            build["waits"][b"k"] = b"v"
        self.assertEqual(store.view("patient")["waits"][b"k"], b"v")


class Documents(unittest.TestCase):
    def test_samples(self) -> None:
        import samples

        for page, least in (("docs/python.md", 8), ("README.md", 1)):
            with Server() as server:
                self.assertGreaterEqual(samples.run(page, server.directory), least)


if __name__ == "__main__":
    unittest.main()
