"""Blocks of operations for `kelix bench languages`, which starts this as a process and takes turns with it.

    python blocks.py DIRECTORY RECORDS

The server of the directory has the table "records" with so many records, and for scans the table "ordered".
Prints `ready`; then runs a block for each line of its input and prints `OPERATIONS NANOSECONDS`, or `missing
NAME` where a module, a table or a variable is missing that the block needs.

    get       table[key]
    rows      500 values at once into an array of numpy's, by a list of keys
    array     the same, by keys in an array
    arrow     a whole scan into a table of pyarrow's
    dict      dict[key]
    lmdb      py-lmdb in a transaction that is held
    redis     redis-py, a request a key, over the Unix socket that $KELIX_BENCH_REDIS names
    stash     gunicorn's stash, which its workers share: a request a key to its arbiter, over a Unix socket

Keys are drawn before a block's time begins, and values verified after it has ended.
"""

import atexit
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from struct import unpack_from
from typing import Any

import kelix

# Of requests to other processes fewer do.
BLOCK = 2_000
REQUESTS = 500
BATCH = 500
KEY_BYTES = 16
VALUE_BYTES = 32


class Missing(Exception):
    """Something that a block needs is not there."""


def key_of(record: int) -> bytes:
    return b"user0000" + record.to_bytes(8, "little")


def verify(value: bytes, record: int) -> None:
    """Each value names its record, the next one of a walk, and what both are together."""
    following, own, both = unpack_from("<QQQ", value)
    if len(value) != VALUE_BYTES or own != record or both != following ^ record:
        raise AssertionError(f"record {record} has the value of another: {value!r}")


class Blocks:
    def __init__(self, directory: str, records: int) -> None:
        self.records = records
        self.store = kelix.connect(directory)
        self.table = self.store["records"]
        self.random = random.Random(7)
        self.kept: dict[str, Any] = {}

    def draw(self, count: int = BLOCK) -> tuple[list[int], list[bytes]]:
        drawn = self.random.choices(range(self.records), k=count)
        return drawn, [key_of(record) for record in drawn]

    def all(self) -> Iterator[tuple[bytes, bytes]]:
        """All records, for what is to have the same."""
        for first in range(0, self.records, BLOCK):
            keys = [key_of(record) for record in range(first, min(first + BLOCK, self.records))]
            for key, value in zip(keys, self.table.multi_get(keys), strict=True):
                assert value is not None
                yield key, value

    def keep(self, name: str, make: Callable[[], Any]) -> Any:
        """What is made with the first block that needs it."""
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]

    def verify(self, drawn: list[int], values: list[Any]) -> None:
        for record, value in zip(drawn, values, strict=True):
            verify(value, record)

    def singly(self, get: Callable[[bytes], Any], count: int = BLOCK) -> tuple[int, int]:
        drawn, keys = self.draw(count)
        began = time.perf_counter_ns()
        values = [get(key) for key in keys]
        took = time.perf_counter_ns() - began
        self.verify(drawn, values)
        return count, took

    def indexed(self, mapping: Any) -> tuple[int, int]:
        """As `singly`, by the operator and not by a call."""
        drawn, keys = self.draw()
        began = time.perf_counter_ns()
        values = [mapping[key] for key in keys]
        took = time.perf_counter_ns() - began
        self.verify(drawn, values)
        return BLOCK, took

    def get(self) -> tuple[int, int]:
        return self.indexed(self.table)

    def rows(self) -> tuple[int, int]:
        return self.into_rows(lambda keys: keys)

    def array(self) -> tuple[int, int]:
        import numpy

        return self.into_rows(
            lambda keys: numpy.frombuffer(b"".join(keys), numpy.uint8).reshape(-1, KEY_BYTES)
        )

    def into_rows(self, form: Callable[[list[bytes]], Any]) -> tuple[int, int]:
        import numpy

        out = self.keep("out", lambda: numpy.empty((BLOCK, VALUE_BYTES), numpy.uint8))
        drawn, keys = self.draw()
        batches = [(form(keys[at : at + BATCH]), out[at : at + BATCH]) for at in range(0, BLOCK, BATCH)]
        table = self.table
        out[:] = 0
        began = time.perf_counter_ns()
        present = [table.rows(keys, rows) for keys, rows in batches]
        took = time.perf_counter_ns() - began
        assert all(all(batch) for batch in present)
        for record, row in zip(drawn, out, strict=True):
            verify(row.tobytes(), record)
        return BLOCK, took

    def arrow(self) -> tuple[int, int]:
        import pyarrow

        if "ordered" not in self.store:
            raise Missing("ordered")
        scan = self.store["ordered"].scan()
        began = time.perf_counter_ns()
        read = pyarrow.table(scan.arrow())
        took = time.perf_counter_ns() - began
        for at in (0, read.num_rows // 2, read.num_rows - 1) if read.num_rows else ():
            verify(read["value"][at].as_py(), int.from_bytes(read["key"][at].as_py()[8:], "little"))
        return read.num_rows, took

    def dict(self) -> tuple[int, int]:
        return self.indexed(self.keep("dict", lambda: {key: value for key, value in self.all()}))

    def lmdb(self) -> tuple[int, int]:
        import lmdb

        def fill() -> Any:
            folder = self.keep("folder", tempfile.TemporaryDirectory)
            environment = lmdb.open(folder.name, map_size=(1 << 26) + self.records * 512, sync=False)
            with environment.begin(write=True) as transaction:
                transaction.cursor().putmulti(self.all())
            return environment.begin()

        return self.singly(self.keep("lmdb", fill).get)

    def redis(self) -> tuple[int, int]:
        import redis

        path = os.environ.get("KELIX_BENCH_REDIS")
        if not path:
            raise Missing("KELIX_BENCH_REDIS")

        def fill() -> Any:
            client = redis.Redis(unix_socket_path=path)
            pipeline = client.pipeline(transaction=False)
            for number, (key, value) in enumerate(self.all(), 1):
                pipeline.set(key, value)
                if number % 10_000 == 0:
                    pipeline.execute()
            pipeline.execute()
            return client

        return self.singly(self.keep("redis", fill).get, REQUESTS)


    def stash(self) -> tuple[int, int]:
        from gunicorn.dirty.stash import StashClient

        def fill() -> Any:
            folder = self.keep("folder", tempfile.TemporaryDirectory).name
            arbiter = self.keep("arbiter", lambda: Arbiter(folder))
            client = StashClient(arbiter.socket())
            for key, value in self.all():
                client.put("records", key.hex(), value)
            return client

        client = self.keep("stash", fill)
        return self.singly(lambda key: client.get("records", key.hex()), REQUESTS)


class Arbiter:
    """gunicorn with a stash, which ends with this program."""

    # The worker of the pages tells where the arbiter of the stash listens, in a file that appears whole.
    PROGRAM = """
import os
from gunicorn.dirty.app import DirtyApp

class Nothing(DirtyApp):
    stashes = ["records"]

    def __call__(self, action, *arguments, **named):
        return None

def tell(worker):
    with open("told.new", "w") as file:
        file.write(os.environ["GUNICORN_DIRTY_SOCKET"])
    os.replace("told.new", "told")

def web(environment, start):
    start("204 No Content", [])
    return []
"""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(os.path.join(folder, "application.py"), "w") as file:
            file.write(self.PROGRAM + "\npost_worker_init = tell\n")
        command = [sys.executable, "-m", "gunicorn", "--bind", "unix:pages", "--workers", "1", "--no-control-socket"]
        command += ["--dirty-app", "application:Nothing", "--dirty-workers", "1", "--config", "application.py"]
        log = open(os.path.join(folder, "gunicorn.log"), "w")
        self.process = subprocess.Popen([*command, "application:web"], cwd=folder, stdout=log, stderr=log)
        atexit.register(self.end)

    def socket(self) -> str:
        """Where the stash is to be had."""
        told = os.path.join(self.folder, "told")
        while not os.path.exists(told):
            if self.process.poll() is not None:
                with open(os.path.join(self.folder, "gunicorn.log")) as log:
                    raise RuntimeError(f"gunicorn ended: {log.read()}")
            time.sleep(0.01)
        with open(told) as file:
            return file.read()

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


def main() -> None:
    blocks = Blocks(sys.argv[1], int(sys.argv[2]))
    known: dict[str, Callable[[], tuple[int, int]]] = {
        name: getattr(blocks, name) for name in ("get", "rows", "array", "arrow", "dict", "lmdb", "redis", "stash")
    }
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            operations, took = known[line.strip()]()
            print(operations, took, flush=True)
        except ImportError as error:
            print("missing", error.name, flush=True)
        except Missing as missing:
            print("missing", missing, flush=True)


if __name__ == "__main__":
    main()
