"""What calls cost: prints nanoseconds, the best of many short blocks that take turns.

    python bench.py [KEYS]

It starts a server of its own (`$KELIX`, or target/release/kelix) and verifies values as it goes. Without
py-lmdb its line is missing, and says so.
"""

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

# In place of this folder, whose `kelix` is the source and not what was installed.
sys.path[0] = str(Path(__file__).parent / "tests")

from support import Server  # noqa: E402

import kelix  # noqa: E402

KEYS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
BLOCK = 2_000
ROUNDS = 200
BATCH = 500
VALUE_BYTES = 32


def key_of(number: int) -> bytes:
    return b"key:%012d" % number


def value_of(number: int) -> bytes:
    return b"value:%026d" % number


class Getter:
    """Gets the keys of a block and verifies what comes."""

    def __init__(self, mapping: object) -> None:
        self.mapping = mapping

    def __call__(self, keys: list[bytes]) -> list[bytes]:
        mapping = self.mapping
        return [mapping[key] for key in keys]  # type: ignore[index]


def main() -> None:
    import os

    numbers = list(range(KEYS))
    pairs = {key_of(number): value_of(number) for number in numbers}
    with Server() as server, tempfile.TemporaryDirectory() as directory:
        store = kelix.connect(server.directory)
        table = store["bench"]
        table.update(pairs)
        out = np.empty((BATCH, VALUE_BYTES), np.uint8)
        rows: dict[str, tuple[Callable[[list[bytes]], object], int]] = {}
        nothing = table.arrow([])
        rows["a method that does nothing"] = (lambda keys: [len(nothing) for _ in keys], 0)
        rows["dict[key]"] = (Getter(pairs), 1)
        rows["table[key]"] = (Getter(table), 1)
        rows["table.get(key)"] = (lambda keys, get=table.get: [get(key) for key in keys], 1)
        rows["multi_get of 500, a key"] = (
            lambda keys: [
                value for at in range(0, BLOCK, BATCH) for value in table.multi_get(keys[at : at + BATCH])
            ],
            1,
        )

        def into_rows(keys: list[bytes]) -> object:
            for at in range(0, BLOCK, BATCH):
                table.rows(keys[at : at + BATCH], out)
            return out

        rows["rows of 500 into numpy, a key"] = (into_rows, 2)
        array = np.empty((BLOCK, 16), np.uint8)

        def arrays_into_rows(keys: list[bytes]) -> object:
            for at in range(0, BLOCK, BATCH):
                table.rows(array[at : at + BATCH], out)
            return out

        rows["the same, keys in an array"] = (arrays_into_rows, 2)
        lmdb_of(rows, os.path.join(directory, "lmdb"), pairs)
        best = {name: float("inf") for name in rows}
        choose = random.Random(1)
        for _ in range(ROUNDS):
            for name, (call, kind) in choose.sample(sorted(rows.items(), key=str), len(rows)):
                # Each has keys of its own, which no other one has brought into the processor's caches.
                block = [key_of(choose.randrange(KEYS)) for _ in range(BLOCK)]
                wanted = [pairs[key] for key in block]
                array[:] = np.frombuffer(b"".join(block), np.uint8).reshape(BLOCK, 16)
                began = time.perf_counter_ns()
                found = call(block)
                best[name] = min(best[name], (time.perf_counter_ns() - began) / BLOCK)
                if kind == 1:
                    assert found == wanted, name
                elif kind == 2:
                    assert out.tobytes() == b"".join(wanted[-BATCH:]), name
        print(f"{KEYS} keys of 16 bytes, values of {VALUE_BYTES}, ns each")
        for name, nanoseconds in best.items():
            print(f"{name:32} {nanoseconds:8.1f}")
        arrow(store)


def lmdb_of(
    rows: dict[str, tuple[Callable[[list[bytes]], object], int]], path: str, pairs: dict[bytes, bytes]
) -> None:
    try:
        import lmdb
    except ImportError:
        print("py-lmdb is not installed: no line of it")
        return
    environment = lmdb.open(path, map_size=1 << 32, sync=False)
    with environment.begin(write=True) as transaction:
        for key, value in pairs.items():
            transaction.put(key, value)
    held = environment.begin()
    rows["py-lmdb, in a held transaction"] = (lambda keys, get=held.get: [get(key) for key in keys], 1)


def arrow(store: kelix.Store) -> None:
    try:
        import pyarrow
    except ImportError:
        print("pyarrow is not installed: no line of it")
        return
    table = store.table("scanned", key=int, value=int, kind="inline")
    ordered = store.table("ordered", kind="ordered")
    table.update((number, number * 3) for number in range(200_000))
    ordered.update((key_of(number), value_of(number)) for number in range(200_000))
    for name, of in (("inline", table), ("ordered", ordered)):
        best = float("inf")
        for _ in range(10):
            began = time.perf_counter_ns()
            read = pyarrow.table(of.scan().arrow())
            best = min(best, (time.perf_counter_ns() - began) / 200_000)
        assert read.num_rows == 200_000
        print(f"{'scan to Arrow, ' + name + ', a row':32} {best:8.1f}")


if __name__ == "__main__":
    main()
