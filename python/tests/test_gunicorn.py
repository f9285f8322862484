"""Workers of gunicorn that were forked off a process which had opened all before."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
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
def begin():
    store["workers"][b"%d" % os.getpid()] = first[b"42"]


os.register_at_fork(after_in_child=begin)


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
                store.create("workers")
                until = time.monotonic() + 30
                while len(store["workers"]) < 4 and time.monotonic() < until:
                    time.sleep(0.02)
                self.assertEqual(set(store["workers"].values()), {b"1"})
                before = self.answers(port, {b"1 1"})
                # They see what replaces it; their views, each of its own, stay.
                build(store, b"2")
                after = self.answers(port, {b"2 1"})
                seen = {int(key) for key in store["visits"]}
                self.assertEqual(seen, before | after)
                self.assertLessEqual(seen, {int(key) for key in store["workers"]})
            finally:
                gunicorn.send_signal(signal.SIGTERM)
                self.assertEqual(gunicorn.wait(30), 0)

    def answers(self, port: int, wanted: set[bytes]) -> set[int]:
        """The workers that answered, of many requests, and that all said the same."""
        workers: set[int] = set()
        for _ in range(100):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                worker, said = answer.read().split(b" ", 1)
            self.assertIn(said, wanted)
            workers.add(int(worker))
        return workers


if __name__ == "__main__":
    unittest.main()
