"""Workers of gunicorn that were forked off a process which had opened all before."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from support import Server

import kelix

APPLICATION = """
import os
import kelix

store = kelix.connect(os.environ["KELIX_DIR"])
products = store["products"]
first = store.view("shop")["products"]
assert products[b"42"] == first[b"42"] == b"1", "the process that forks uses them, too"
# A worker holds the generation from its beginning on, and not from its first request on.
os.register_at_fork(after_in_child=lambda: first[b"42"])


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    store["visits"][b"%d" % os.getpid()] = b"seen"
    return [b"%d %s %s" % (os.getpid(), products[b"42"], first[b"42"])]
"""


def build(store: kelix.Store, value: bytes) -> None:
    with store.build("shop", {"products": "hash"}) as build:
        build["products"].update((b"%d" % number, value) for number in range(1000))


class Gunicorn(unittest.TestCase):
    def test_preloaded_workers(self) -> None:
        with Server() as server, tempfile.TemporaryDirectory() as folder:
            store = kelix.connect(server.directory)
            build(store, b"1")
            (Path(folder) / "shop_of_the_test.py").write_text(APPLICATION)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            options = ["--preload", "--workers", "4", "--bind", f"127.0.0.1:{port}", "--log-level", "error"]
            gunicorn = subprocess.Popen(
                [sys.executable, "-m", "gunicorn", *options, "shop_of_the_test"],
                cwd=folder,
                env={**os.environ, "KELIX_DIR": server.directory},
            )
            try:
                before = self.answers(port, {b"1 1"})
                self.assertGreater(len(before), 1, "several workers answered")
                # They see what replaces it; their views, each of its own, stay.
                build(store, b"2")
                after = self.answers(port, {b"2 1"})
                self.assertEqual({int(key) for key in store["visits"]}, before | after)
            finally:
                gunicorn.send_signal(signal.SIGTERM)
                self.assertEqual(gunicorn.wait(30), 0)

    def answers(self, port: int, wanted: set[bytes]) -> set[int]:
        """The workers that answered, of many requests, and that all said the same."""
        workers: set[int] = set()
        until = time.monotonic() + 30
        rounds = 0
        while rounds < 100:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                    worker, said = answer.read().split(b" ", 1)
            except (ConnectionError, urllib.error.URLError):
                # It has not begun yet.
                if time.monotonic() > until or rounds > 0:
                    raise
                time.sleep(0.05)
                continue
            self.assertIn(said, wanted)
            workers.add(int(worker))
            rounds += 1
        return workers


if __name__ == "__main__":
    unittest.main()
