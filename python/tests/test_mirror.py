"""Stores on a mirror: what they tell of it, and what their options have them read."""

import time
import unittest
from collections.abc import Callable

from support import Server

import kelix

SERVER: Server
MIRROR: Server


def setUpModule() -> None:
    global SERVER, MIRROR
    SERVER = Server("--listen", "0")
    MIRROR = Server(mirror_of=SERVER)


def tearDownModule() -> None:
    MIRROR.close()
    SERVER.close()


def until(what: str, is_so: Callable[[], bool]) -> None:
    """Waits until something is so, which it is in the end whatever the machine does."""
    end = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.001)


def has(store: kelix.Store, value: bytes) -> bool:
    """Whether a store has a value where it is read. One that has no table yet has none."""
    try:
        return store["t"].get(b"k") == value
    except kelix.NoSuchTable:
        return False


class Mirrors(unittest.TestCase):
    def test_stores_tell_where_they_are(self) -> None:
        with kelix.connect(MIRROR.directory) as here, kelix.connect(SERVER.directory) as there:
            self.assertEqual((here.is_mirror, here.primary), (True, SERVER.tcp()))
            self.assertGreaterEqual(here.lag or 0.0, 0.0)
            self.assertIsNotNone(here.lag)
            self.assertEqual((there.is_mirror, there.primary, there.lag), (False, None, None))
        with self.assertRaises(kelix.InvalidArgument):
            kelix.connect(MIRROR.directory, max_lag=-1.0)

    def test_options_say_which_of_the_two_is_read(self) -> None:
        directory = MIRROR.directory
        with (
            kelix.connect(directory, timeout=20) as usual,
            kelix.connect(directory, timeout=20, own_writes=False) as here,
            kelix.connect(directory, timeout=20, strict=True) as strict,
            kelix.connect(directory, timeout=20, max_lag=0.2) as limited,
        ):

            def is_stale() -> bool:
                try:
                    limited["t"].get(b"k")
                except kelix.errors.Unavailable:
                    return True
                return False

            usual["t"][b"k"] = b"old"
            self.assertTrue(has(strict, b"old"))
            until("the mirror has it", lambda: has(here, b"old"))
            # So that it has its session and its table.
            until("it is not too old", lambda: not is_stale())
            # A mirror that stands still does not have what is written now.
            MIRROR.stop_still()
            usual["t"][b"k"] = b"new"
            self.assertTrue(has(usual, b"new") and has(strict, b"new") and has(here, b"old"))
            until("it is too old for some", is_stale)
            MIRROR.go_on()
            until("the mirror has it", lambda: has(here, b"new"))
            # Without its primary a mirror shows what it has.
            SERVER.stop_still()
            self.assertTrue(has(here, b"new"))
            until("it is too old for some", is_stale)
            SERVER.go_on()


if __name__ == "__main__":
    unittest.main()
