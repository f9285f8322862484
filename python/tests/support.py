"""What tests share: a server of their own on a run directory that goes with it."""

import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

REPOSITORY = Path(__file__).resolve().parents[2]


def program() -> str:
    """The program `kelix`: `$KELIX`, or the one that was built in the repository."""
    named = os.environ.get("KELIX")
    if named:
        return named
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    found = target / "release" / "kelix"
    if not found.exists():
        raise FileNotFoundError(f"{found} is not built: `make build`, or name one in $KELIX")
    return str(found)


class Server:
    """A server, ended by its process id."""

    def __init__(self, *options: str, directory: str | None = None, mirror_of: "Server | None" = None) -> None:
        self._own = tempfile.TemporaryDirectory(prefix="kelix-python-") if directory is None else None
        self.directory = directory or (self._own.name if self._own else "")
        what = ["--memory", "512M"] if mirror_of is None else ["--mirror-of", mirror_of.tcp()]
        command = [program(), "--dir", self.directory, "serve", "--no-pin", *what, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        if not self.said.startswith("serving"):
            raise RuntimeError(f"the server does not begin: {self.said!r}")

    def tcp(self) -> str:
        """Where it listens, with `--listen`."""
        found = re.search(r"127\.0\.0\.1:[0-9]+", self.said)
        assert found, f"the server does not listen: {self.said!r}"
        return found.group()

    def stop_still(self) -> None:
        """Lets it stand still, as if its host were too busy. Returns when all of its threads do."""
        self.process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.process.pid}/task")
        until = time.monotonic() + 60
        while any((task / "stat").read_text().rsplit(") ", 1)[1][0] != "T" for task in tasks.iterdir()):
            if time.monotonic() > until:
                raise TimeoutError("the server does not stand still")
            time.sleep(0.001)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        if self._own:
            self._own.cleanup()

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
