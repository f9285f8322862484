"""Runs the samples of pages: all blocks of Python of a page, one after the other, are one program."""

import os
import re
import sys
import tempfile
from pathlib import Path

PAGES = Path(os.environ.get("KELIX_PAGES", Path(__file__).resolve().parents[2]))


def blocks(page: str) -> list[tuple[int, str]]:
    """The blocks with the lines at which they begin."""
    text = (PAGES / page).read_text()
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)
    return [(text.count("\n", 0, block.start()) + 2, block[1]) for block in found]


def program(page: str) -> str:
    """All blocks, each where it stands in the page, so that errors name its lines."""
    lines: list[str] = []
    for line, block in blocks(page):
        lines += [""] * (line - 1 - len(lines)) + block.splitlines()
    return "\n".join(lines) + "\n"


def run(page: str, directory: str) -> int:
    """Runs them with the server of a directory. Returns how many they are."""
    os.environ["KELIX_DIR"] = directory
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        os.chdir(folder)
        try:
            exec(compile(program(page), str(PAGES / page), "exec"), {"__name__": "__main__"})
        finally:
            os.chdir(before)
    return len(blocks(page))


if __name__ == "__main__":
    # What mypy checks.
    sys.stdout.write(program(sys.argv[1]))
