"""Runs the samples of docs/python.md, one after the other: each block of Python is part of one program."""

import os
import re
import sys
import tempfile
from pathlib import Path

PAGE = Path(os.environ.get("KELIX_PAGE", Path(__file__).resolve().parents[2] / "docs" / "python.md"))


def blocks() -> list[tuple[int, str]]:
    """The blocks with the lines at which they begin."""
    text = PAGE.read_text()
    return [(text.count("\n", 0, found.start()) + 2, found[1]) for found in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)]


def program() -> str:
    """All blocks, each where it stands in the page, so that errors name its lines."""
    lines: list[str] = []
    for line, block in blocks():
        lines += [""] * (line - 1 - len(lines)) + block.splitlines()
    return "\n".join(lines) + "\n"


def run(directory: str) -> int:
    """Runs them with this server. Returns how many they are."""
    os.environ["KELIX_DIR"] = directory
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        os.chdir(folder)
        try:
            exec(compile(program(), str(PAGE), "exec"), {"__name__": "__main__"})
        finally:
            os.chdir(before)
    return len(blocks())


if __name__ == "__main__":
    # What mypy checks.
    sys.stdout.write(program())
