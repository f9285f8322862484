"""Suites by others: CPython's tests of mappings, and hypothesis against a `dict`."""

import pickle
import unittest
from test import mapping_tests
from typing import Any

import test_store
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support import Server
from test_store import fresh

import kelix

SERVER: Server


def setUpModule() -> None:
    global SERVER
    SERVER = test_store.SERVER = Server()


def tearDownModule() -> None:
    SERVER.close()


PICKLED: kelix.Codec[Any] = kelix.Codec(pickle.dumps, pickle.loads)


OBJECTS: list[Any] = []


def note(value: Any) -> bytes:
    OBJECTS.append(value)
    return b"%d" % (len(OBJECTS) - 1)


# The suite changes a list that it got, and wants to see that in the mapping: of values that are bytes nobody
# can. So what is stored in its second half are numbers of objects of this process.
NOTED: kelix.Codec[Any] = kelix.Codec(note, lambda data: OBJECTS[int(data)])


class Made(kelix.Table[Any, Any]):
    """A table that is made as a `dict` is: the suite makes many, and classes of them."""

    values_are = PICKLED

    def __new__(cls, *_: Any, **__: Any) -> Any:
        store, name = kelix.connect(SERVER.directory), fresh().name
        # It is there before the first write. With an order two of the same keys bring them in the same.
        store.create(name, "ordered")
        return super().__new__(cls, store, name, None, PICKLED, cls.values_are)

    def __init__(self, *pairs: Any, **more: Any) -> None:
        self.update(*pairs, **more)

    def copy(self) -> Any:
        return type(self)(self)

    @classmethod
    def fromkeys(cls, keys: Any, value: Any = None) -> Any:
        table = cls()
        for key in keys:
            table[key] = value
        return table


class BasicProtocol(mapping_tests.BasicTestMappingProtocol):  # type: ignore[misc]
    type2test = Made


class MadeOfObjects(Made):
    values_are = NOTED


class Protocol(mapping_tests.TestMappingProtocol):  # type: ignore[misc]
    type2test = MadeOfObjects


KEYS = st.binary(min_size=1, max_size=3) | st.sampled_from([b"a", b"b", b"c"])
VALUES = st.binary(max_size=64) | st.just(bytes(5000))


class Machine(RuleBasedStateMachine):
    """A table beside a `dict`."""

    kind = "hash"

    @initialize()
    def begin(self) -> None:
        self.table = fresh(self.kind)
        kelix.connect(SERVER.directory).create(self.table.name, self.kind)
        self.model: dict[bytes, bytes] = {}

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        self.table[key] = value
        self.model[key] = value

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.table.get(key) == self.model.get(key)
        assert (key in self.table) == (key in self.model)
        assert self.table.get_range(key, 1, 7) == (self.model[key][1:8] if key in self.model else None)

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        assert self.table.discard(key) == (self.model.pop(key, None) is not None)

    @rule(key=KEYS)
    def pop(self, key: bytes) -> None:
        assert self.table.pop(key, None) == self.model.pop(key, None)

    @rule(key=KEYS, value=VALUES)
    def setdefault(self, key: bytes, value: bytes) -> None:
        assert self.table.setdefault(key, value) == self.model.setdefault(key, value)

    @rule(pairs=st.lists(st.tuples(KEYS, VALUES), max_size=20))
    def update(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self.table.update(pairs)
        self.model.update(pairs)

    @rule(keys=st.lists(KEYS, max_size=100))
    def multi_get(self, keys: list[bytes]) -> None:
        assert self.table.multi_get(keys) == [self.model.get(key) for key in keys]

    @rule(key=KEYS, value=VALUES)
    def compare_and_set(self, key: bytes, value: bytes) -> None:
        item = self.table.item(key)
        assert (item and item.value) == self.model.get(key)
        assert self.table.compare_and_set(key, item and item.version, value).done
        assert not self.table.compare_and_set(key, None, b"no").done
        self.model[key] = value

    @rule()
    def clear(self) -> None:
        self.table.clear()
        self.model.clear()

    @invariant()
    def same(self) -> None:
        if hasattr(self, "table"):
            assert len(self.table) == len(self.model)
            assert dict(self.table.items()) == self.model


class OrderedMachine(Machine):
    """The same with an order."""

    kind = "ordered"

    @rule(
        start=KEYS, stop=KEYS, prefix=st.binary(max_size=1), limit=st.integers(0, 5), backwards=st.booleans()
    )
    def range(self, start: bytes, stop: bytes, prefix: bytes, limit: int, backwards: bool) -> None:
        wanted = [key for key in sorted(self.model) if start <= key < stop and key.startswith(prefix)]
        if backwards:
            wanted.reverse()
        keys = self.table.keys(start=start, stop=stop, prefix=prefix, limit=limit, backwards=backwards)
        assert list(keys) == wanted[:limit]
        assert len(keys) == len(wanted[:limit])


Machine.TestCase.settings = OrderedMachine.TestCase.settings = settings(
    max_examples=30, stateful_step_count=30, deadline=None
)


class TestMachine(Machine.TestCase):  # type: ignore[misc,name-defined]
    pass


class TestOrderedMachine(OrderedMachine.TestCase):  # type: ignore[misc,name-defined]
    pass


if __name__ == "__main__":
    unittest.main()
