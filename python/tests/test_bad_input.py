"""Bad input is an exception that says what is wrong: never a crash, a hang, or a wrong byte."""

import os
import subprocess
import sys
import tempfile
import unittest
from typing import Any

import numpy as np
from support import Server
from test_store import fresh

import kelix
import test_store

SERVER: Server


def setUpModule() -> None:
    global SERVER
    SERVER = test_store.SERVER = Server()


def tearDownModule() -> None:
    SERVER.close()


class BadInput(unittest.TestCase):
    def test_types(self) -> None:
        table = fresh()
        for use in (
            lambda: table["text"],
            lambda: table[7],
            lambda: table[None],
            lambda: table.__setitem__(b"k", "text"),
            lambda: table.__setitem__(b"k", None),
            lambda: "text" in table,
            lambda: table.multi_get(b"one"),
            lambda: table.multi_get([b"k", "text"]),
            lambda: table.multi_get(7),
            lambda: table.update([(b"k", 7)]),
            lambda: table.update(7),
            lambda: table.put(b"k"),
            lambda: table.put(b"k", b"v", flags=-1),
            lambda: table.put(b"k", b"v", attributes={7: b"x"}),
            lambda: kelix.connect(7),
            lambda: kelix.connect(SERVER.directory).table("t", key=float),
            lambda: kelix.connect(SERVER.directory).table(7),
        ):
            with self.assertRaises((TypeError, OverflowError, AttributeError)):
                use()
        numbers = fresh("numbers", key=int)
        for key in (-1, 2**64):
            with self.assertRaises(ValueError):
                numbers[key]
        with self.assertRaises(TypeError):
            numbers["1"]
        text = fresh(key=str)
        with self.assertRaises(UnicodeEncodeError):
            text["\ud800"]

    def test_bytes_that_are_no_text_and_no_number(self) -> None:
        table = fresh()
        table[b"\xff"] = b"\xfe"
        as_text = kelix.connect(SERVER.directory).table(table.name, value=str)
        as_number = kelix.connect(SERVER.directory).table(table.name, value=int)
        with self.assertRaises(UnicodeDecodeError):
            as_text[b"\xff"]
        with self.assertRaises(UnicodeDecodeError):
            list(kelix.connect(SERVER.directory).table(table.name, key=str))
        with self.assertRaisesRegex(ValueError, "1 bytes are no number"):
            as_number[b"\xff"]
        import pyarrow

        for other in (as_text, as_number):
            with self.assertRaises((kelix.InvalidArgument, OSError)):
                pyarrow.table(other.scan().arrow())
            with self.assertRaises(kelix.InvalidArgument):
                pyarrow.record_batch(other.arrow([b"\xff"]))

    def test_limits(self) -> None:
        table = fresh()
        table[b"k"] = b"v"
        long = bytes((64 << 10) + 1)
        for use in (
            lambda: table[long],
            lambda: table.__setitem__(long, b"v"),
            lambda: table.multi_get([b"k", long]),
            lambda: table.put(b"k", b"v", attributes={"n" * 256: b""}),
            lambda: table.put(b"k", b"v", expires_in=-1),
            lambda: table.put(b"k", b"v", expires_in=float("nan")),
            lambda: table.get_range(b"k", -1, 1),
            lambda: table.get_range(b"k", 0, -1),
            lambda: kelix.connect(SERVER.directory)["n" * 256].get(b"k"),
            lambda: kelix.connect(SERVER.directory)[""].get(b"k"),
            lambda: kelix.connect(SERVER.directory, timeout=-1),
            lambda: kelix.connect(SERVER.directory, timeout=float("inf")),
            lambda: kelix.connect(SERVER.directory, fabric="pigeon"),
            lambda: kelix.connect(SERVER.directory, certificate="x"),
            lambda: kelix.connect(""),
            lambda: kelix.connect("host:port"),
            lambda: kelix.connect(SERVER.directory).build("d", {"t": "btree"}),
            lambda: fresh("numbers").__setitem__(b"short", b"v"),
            lambda: fresh("inline", key=int).__setitem__(7, b"short"),
        ):
            with self.assertRaises(kelix.InvalidArgument) as raised:
                use()
            self.assertEqual((raised.exception.kind, raised.exception.retry), ("invalid argument", False))
        self.assertEqual(table[b"k"], b"v")

    def test_rows(self) -> None:
        table = fresh()
        table.update((b"%d" % number, np.full(4, number, np.float32)) for number in range(100))
        keys = [b"%d" % number for number in range(100)]
        out = np.full((100, 4), 7, np.float32)
        frozen = np.zeros((100, 4), np.float32)
        frozen.flags.writeable = False
        overlapping = np.lib.stride_tricks.as_strided(np.zeros(500, np.float32), (100, 4), (4, 4))
        for bad in (
            out[:99],
            out[:, :3],
            out[::-1],
            out.T,
            np.zeros((100, 5), np.float32),
            np.zeros((100, 4), np.float64),
            np.zeros((50, 8), np.float32),
            frozen,
            overlapping,
            bytes(1600),
            np.zeros((), np.float32),
            np.zeros((100, 0), np.float32),
            np.zeros(100, "S15"),
            np.full((100, 2), "text", object),
        ):
            with self.assertRaises((kelix.InvalidArgument, kelix.BufferTooSmall)):
                table.rows(keys, bad)
        for bad in (None, 7, "text", [bytearray(16)]):
            with self.assertRaises(TypeError):
                table.rows(keys, bad)
        with self.assertRaises(kelix.BufferTooSmall) as raised:
            table.rows(keys, np.zeros((100, 2), np.float32))
        self.assertEqual(raised.exception.needed_bytes, 16)
        self.assertTrue((out == 7).all(), "nothing is written before all is known to fit")
        present = table.rows(keys, out)
        self.assertEqual(bytes(present), b"\1" * 100)
        self.assertTrue((out == np.arange(100)[:, None]).all())
        self.assertEqual(table.rows([], np.zeros((0, 4), np.float32)), b"")
        self.assertEqual(table.rows([b"1", b"none"], memoryview(out)[:2]), b"\1\0")
        self.assertTrue((out[0] == 1).all() and (out[1] == 0).all())

    def test_buffers(self) -> None:
        table = fresh()
        table[b"k"] = b"0123456789"
        frozen = np.zeros(16, np.uint8)
        frozen.flags.writeable = False
        for bad in (
            bytes(16),
            frozen,
            np.zeros((16, 2), np.uint8)[:, 0],
            memoryview(bytes(16)),
            np.zeros((), np.uint64),
            np.zeros(4, "S15"),
            # Its bytes are references to objects.
            np.full(4, "text", object),
        ):
            with self.assertRaises(kelix.InvalidArgument):
                table.get_into(b"k", bad)
        for bad in (None, 7, "text", []):
            with self.assertRaises(TypeError):
                table.get_into(b"k", bad)
        for bad in (bytearray(9), bytearray(b"")):
            before = bytes(bad)
            with self.assertRaises(kelix.BufferTooSmall) as raised:
                table.get_into(b"k", bad)
            self.assertEqual((raised.exception.needed_bytes, bytes(bad)), (10, before))
        numbers = np.zeros(4, np.uint32)
        self.assertEqual(table.get_into(b"k", numbers), 10)
        self.assertEqual(numbers.tobytes(), b"0123456789" + bytes(6))

    def test_advice_is_for_python(self) -> None:
        store = kelix.connect(SERVER.directory)
        table = fresh()
        table[b"k"] = b"v"
        with tempfile.NamedTemporaryFile("w") as tokens:
            tokens.write("word\n")
            tokens.flush()
            with Server("--listen", "0", "--tokens", tokens.name) as server:
                guarded = kelix.connect(server.directory).statistics()["tcp"]
                for use, advice in (
                    (lambda: store["no.such.table"][b"k"], "the first write makes it, or store.create(name)"),
                    (lambda: store.view("no.such.dataset"), "or build it with store.build()"),
                    (lambda: list(table.items(start=b"a")), 'kind="ordered", "numbers" or "inline"'),
                    (lambda: store.build("dataset", {table.name: "hash"}), "drop that (store.drop)"),
                    (lambda: kelix.connect("/nowhere"), "kelix.connect(directory), or KELIX_DIR"),
                    (lambda: kelix.connect(guarded), "kelix.connect(token=...)"),
                ):
                    with self.assertRaises(kelix.Error) as raised:
                        use()
                    said = str(raised.exception)
                    self.assertIn(advice, said)
                    self.assertNotRegex(said, "--|kelix table")
                # With the advice it works.
                self.assertEqual(kelix.connect(guarded, token="word").fabric, "tcp")

    def test_keys_in_arrays(self) -> None:
        table = fresh()
        table.update((b"%04d" % number, b"%d" % number) for number in range(1000))
        keys = (
            np.array([b"%04d" % number for number in range(0, 2000, 7)], "S4").view(np.uint8).reshape(-1, 4)
        )
        wanted = [b"%d" % number if number < 1000 else None for number in range(0, 2000, 7)]
        self.assertEqual(table.multi_get(keys), wanted)
        self.assertEqual(table.multi_get(keys[::-2]), wanted[::-2])
        self.assertEqual(table.multi_get(keys[:0]), [])
        numbers = fresh("numbers", key=int, value=str)
        numbers.update((number * 2**50, f"{number}") for number in range(100))
        keys = np.arange(200, dtype=np.uint64) * np.uint64(2**50)
        self.assertEqual(numbers.multi_get(keys)[98:101], ["98", "99", None])
        self.assertEqual(numbers.multi_get(keys[::3])[1], "3")
        for bad in (
            np.zeros(4, np.uint8),
            np.zeros((2, 2, 2), np.uint8),
            np.zeros((2, 2), np.int8),
            b"bytes",
        ):
            with self.assertRaises(TypeError):
                table.multi_get(bad)
        for bad in (np.zeros(4, np.int64), np.zeros((2, 8), np.uint8), np.zeros(4), bytearray(8)):
            with self.assertRaises(TypeError):
                numbers.multi_get(bad)

    def test_codecs_that_fail(self) -> None:
        def fail(_: Any) -> Any:
            raise ZeroDivisionError

        table = fresh(value=kelix.Codec(fail, fail))
        kelix.connect(SERVER.directory)[table.name][b"k"] = b"v"
        for use in (lambda: table[b"k"], lambda: table.__setitem__(b"k", 1), lambda: list(table.values())):
            with self.assertRaises(ZeroDivisionError):
                use()
        wrong = fresh(value=kelix.Codec(lambda value: value, lambda data: data))
        with self.assertRaises(TypeError):
            wrong[b"k"] = "no bytes"

        # One that uses the table itself, in the middle of an operation on it.
        def nested(data: bytes) -> Any:
            return (data, outer.get(b"none"), len(list(raw_of_outer)))

        outer = fresh(value=kelix.Codec(bytes, nested))
        raw_of_outer = kelix.connect(SERVER.directory)[outer.name]
        outer[b"k"] = b"v"
        self.assertEqual(list(outer.items()), [(b"k", (b"v", None, 1))])
        self.assertEqual(outer.multi_get([b"k"]), [(b"v", None, 1)])

    def test_a_server_that_is_not_there(self) -> None:
        for address in ("/nowhere", "127.0.0.1:1"):
            with self.assertRaises(ConnectionError) as raised:
                kelix.connect(address)
            self.assertIsInstance(raised.exception, kelix.Unavailable)
            self.assertTrue(raised.exception.retry)

    def test_tables_of_other_stores(self) -> None:
        with Server() as server:
            here, there = fresh(), kelix.connect(server.directory)["there"]
            there[b"k"] = b"v"
            with self.assertRaises(kelix.NoSuchTable):
                here.put(b"k", links={"to": (there, b"k")})

    def test_memory_stays(self) -> None:
        """What is done again and again takes no more memory."""
        program = f"""
import kelix, resource, gc, pyarrow
store = kelix.connect({SERVER.directory!r})
table = store["leaks"]
table.update((b"%d" % n, bytes(1000)) for n in range(200))
def work(rounds):
    for _ in range(rounds):
        [table[b"%d" % n] for n in range(200)]
        table.multi_get([b"%d" % n for n in range(200)])
        list(table.items())
        try: table[b"none"]
        except KeyError: pass
        try: table["text"]
        except TypeError: pass
        pyarrow.table(table.scan().arrow())
        table.scan().arrow().__arrow_c_stream__()
        table.arrow([b"1"]).__arrow_c_array__()
        with kelix.connect({SERVER.directory!r}) as other:
            other["leaks"][b"1"]
def used():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096
work(30)
before = used()
work(150)
print(used() - before)
"""
        done = subprocess.run(
            [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=120
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLess(int(done.stdout), 8 << 20)


if __name__ == "__main__":
    unittest.main()
