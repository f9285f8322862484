"""What workers of a host take: each with a dict of all items of its own, or each with an open store.

    python memory.py [ITEMS [WORKERS]]

Prints `dict BYTES`, `kelix BYTES` and how much the second is of the first. Each is what all processes take
together: the memory of a page that several have mapped is shared out among them (Pss in
/proc/PID/smaps_rollup), less that of as many interpreters which have done nothing, and with all of the server
for Kelix, which is started for that ($KELIX, or target/release/kelix). Workers are spawned, and no copies of
one process. Keys have 16 bytes, values 32.
"""

import subprocess
import sys
from pathlib import Path

# Where `support` is.
sys.path[0] = str(Path(__file__).parents[1] / "tests")

# Programs of workers. Each says when it is ready, and waits to be ended.
EMPTY = """
import sys
"""
DICT = """
import sys
items = int(sys.argv[2])
pairs = {b"key:%012d" % number: b"value:%026d" % number for number in range(items)}
assert len(pairs) == items
"""
KELIX = """
import kelix, sys
items = int(sys.argv[2])
table = kelix.connect(sys.argv[1])["items"]
# Each has read all there is, so that it has mapped all of it.
for first in range(0, items, 1000):
    numbers = range(first, min(first + 1000, items))
    found = table.multi_get([b"key:%012d" % number for number in numbers])
    assert found == [b"value:%026d" % number for number in numbers]
"""
WAIT = """
print("ready", flush=True)
sys.stdin.read()
"""


def taken(process: int) -> int:
    """What a process takes, in bytes."""
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"the system does not tell what process {process} takes")


def together(program: str, workers: int, directory: str, items: int, server: list[int]) -> int:
    """What workers with this program take, and others besides."""
    command = [sys.executable, "-P", "-c", program + WAIT, directory, str(items)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(workers)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a worker has failed")
        return sum(map(taken, [process.pid for process in processes] + server))
    finally:
        for process in processes:
            process.communicate()


def main() -> None:
    from support import Server

    import kelix

    items = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    with Server() as server:
        with kelix.connect(server.directory) as store:
            store["items"].update((b"key:%012d" % number, b"value:%026d" % number) for number in range(items))
        empty = together(EMPTY, workers, server.directory, items, [])
        of_dicts = together(DICT, workers, server.directory, items, []) - empty
        of_kelix = together(KELIX, workers, server.directory, items, [server.process.pid]) - empty
    print("dict", of_dicts)
    print("kelix", of_kelix)
    print(f"{of_kelix / of_dicts:.3f}")


if __name__ == "__main__":
    main()
