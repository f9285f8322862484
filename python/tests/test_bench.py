"""What measures the package runs, with few items."""

import os
import subprocess
import sys
import unittest
from pathlib import Path
from struct import pack

from support import REPOSITORY, Server

import kelix

# Where blocks.py and memory.py are.
PROGRAMS = Path(os.environ.get("KELIX_BENCHES", REPOSITORY / "python" / "bench"))
RECORDS = 3_000


def value_of(record: int) -> bytes:
    following = (record + 7) % RECORDS
    return pack("<QQQQ", following, record, following ^ record, 0)


class Benches(unittest.TestCase):
    def test_blocks(self) -> None:
        blocks = ("get", "rows", "array", "arrow", "dict", "lmdb", "redis", "stash")
        with Server() as server, kelix.connect(server.directory) as store:
            for name, kind in (("records", "hash"), ("ordered", "ordered")):
                table = store.create(name, kind)
                table.update(
                    (b"user0000" + record.to_bytes(8, "little"), value_of(record))
                    for record in range(RECORDS)
                )
            done = subprocess.run(
                [sys.executable, PROGRAMS / "blocks.py", server.directory, str(RECORDS)],
                input="".join(f"{block}\n" for block in blocks * 2),
                capture_output=True,
                text=True,
            )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        first, *answers = done.stdout.splitlines()
        self.assertEqual((first, len(answers)), ("ready", 2 * len(blocks)))
        for block, answer in zip(blocks * 2, answers, strict=True):
            if block in ("lmdb", "redis") and answer.startswith("missing "):
                continue
            operations, nanoseconds = map(int, answer.split())
            wanted = {"arrow": RECORDS, "redis": 500, "stash": 500}
            self.assertEqual(operations, wanted.get(block, 2_000), block)
            self.assertGreater(nanoseconds, 0)

    def test_memory(self) -> None:
        command = [sys.executable, PROGRAMS / "memory.py", "20000", "2"]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        dicts, stores, _ = done.stdout.splitlines()
        self.assertRegex(dicts, r"^dict \d+$")
        self.assertRegex(stores, r"^kelix \d+$")


if __name__ == "__main__":
    unittest.main()
