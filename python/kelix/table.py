"""Tables as mappings."""

from collections.abc import (
    Iterable,
    Iterator,
    ItemsView,
    KeysView,
    Mapping,
    MutableMapping,
    Sequence,
    ValuesView,
)
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar, Union, cast

from . import _kelix
from ._kelix import ArrowBatch, ArrowScan, Item, Link, Walk
from .codecs import Codec
from .errors import NoSuchTable, VersionMismatch

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from .store import Store, View

K = TypeVar("K")
V = TypeVar("V")

# Pairs that are sent together.
_BATCH = 1024


class _Any:
    """The only one says that a write does not depend on what is there."""

    def __repr__(self) -> str:
        return "kelix.ANY"

    def __reduce__(self) -> str:
        return "ANY"


ANY = _Any()

_MISSING: Any = object()


class Addressed(Protocol):
    """What a link can lead to: a table of a store, of a view, or of a build."""

    @property
    def name(self) -> str: ...
    def _key_bytes(self, key: Any) -> bytes: ...


#: Where a link leads: a `Link`, or a table (or its name) and a key, and bytes of the link's own.
Target = Union[Link, "tuple[Addressed | str, Any]", "tuple[Addressed | str, Any, bytes]"]


class Compared(NamedTuple):
    """How a compare-and-set ended."""

    #: Whether it was done.
    done: bool
    #: The version that the key has now; `None`: it is absent.
    version: int | None


class Range(NamedTuple):
    """Which keys, and in which order."""

    prefix: Any = None
    start: Any = None
    stop: Any = None
    backwards: bool = False
    limit: int | None = None

    def parts(self) -> dict[str, Any]:
        return self._asdict()


_ALL = Range()


class Keys(KeysView[K]):
    """The keys of a table, or of a range of it. Each iteration is a scan."""

    def __init__(self, table: "Table[K, Any]", range: Range) -> None:
        super().__init__(table)
        self._table = table
        self._range = range

    def __iter__(self) -> Iterator[K]:
        return cast(Iterator[K], self._table._rows("keys", self._range.parts()))

    def __len__(self) -> int:
        return self._table._count(self._range.parts())

    def __contains__(self, key: object) -> bool:
        return key in self._table if self._range == _ALL else any(found == key for found in self)

    def __reversed__(self) -> Iterator[K]:
        return iter(Keys(self._table, self._range._replace(backwards=not self._range.backwards)))


class Values(ValuesView[V]):
    """The values of a table, or of a range of it."""

    def __init__(self, table: "Table[Any, V]", range: Range) -> None:
        super().__init__(table)
        self._table = table
        self._range = range

    def __iter__(self) -> Iterator[V]:
        return cast(Iterator[V], self._table._rows("values", self._range.parts()))

    def __len__(self) -> int:
        return self._table._count(self._range.parts())

    def __contains__(self, value: object) -> bool:
        return any(found == value for found in self)


class Items(ItemsView[K, V]):
    """Pairs of keys and values of a table, or of a range of it."""

    def __init__(self, table: "Table[K, V]", range: Range) -> None:
        super().__init__(table)
        self._table = table
        self._range = range

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return cast(Iterator[tuple[K, V]], self._table._rows("items", self._range.parts()))

    def __len__(self) -> int:
        return self._table._count(self._range.parts())

    def __contains__(self, item: object) -> bool:
        if self._range == _ALL and isinstance(item, tuple) and len(item) == 2:
            found = self._table.get(item[0], _MISSING)
            return found is not _MISSING and bool(found == item[1])
        return any(found == item for found in self)


class Scan:
    """A scan: an iterable of pairs, and what `pyarrow.table` and others read."""

    def __init__(self, table: "Table[Any, Any]", range: Range, attributes: Sequence[str]) -> None:
        self._table = table
        self._range = range
        self._attributes = list(attributes)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(Items(self._table, self._range))

    def arrow(self) -> ArrowScan:
        """An object with `__arrow_c_stream__`: columns `key`, `value`, and one for each attribute."""
        return self._table._arrow_scan(self._range.parts(), self._attributes)


class Table(_kelix.Table[K, V], MutableMapping[K, V]):
    """A table of a store, of a view, as a mapping.

    Made by `store["name"]`, `store.table("name", ...)`, `view["name"]` and `view.table("name", ...)`.
    """

    __slots__ = ("_of", "_kind", "_key_codec", "_value_codec")

    _of: "Store | View"
    _kind: str | None
    _key_codec: Codec[K]
    _value_codec: Codec[V]

    def __new__(cls, of: "Store | View", name: str, kind: str | None, key: Codec[K], value: Codec[V]) -> Self:
        table = super().__new__(cls, of._raw, name, kind, key, value)
        table._of = of
        table._kind = kind
        table._key_codec = key
        table._value_codec = value
        return table

    def __reduce__(self) -> Any:
        return Table, (self._of, self.name, self._kind, self._key_codec, self._value_codec)

    def __repr__(self) -> str:
        return f"<kelix.Table {self.name!r} of {self._of!r}>"

    # Mappings that can change have no hash; two tables are equal if their items are.
    __hash__ = None  # type: ignore[assignment]

    def keys(
        self,
        *,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Keys[K]:
        """The keys, or those of a range: from `start` on to below `stop`, that begin with `prefix`, `limit`
        at most.
        """
        return Keys(self, Range(prefix, start, stop, backwards, limit))

    def values(
        self,
        *,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Values[V]:
        """The values, or those of a range."""
        return Values(self, Range(prefix, start, stop, backwards, limit))

    def items(
        self,
        *,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Items[K, V]:
        """Pairs of keys and values, or those of a range."""
        return Items(self, Range(prefix, start, stop, backwards, limit))

    def __reversed__(self) -> Iterator[K]:
        return reversed(self.keys())

    def scan(
        self,
        *,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        backwards: bool = False,
        limit: int | None = None,
        attributes: Sequence[str] = (),
    ) -> Scan:
        """A range to be read as pairs, or as Arrow data with columns of attributes."""
        return Scan(self, Range(prefix, start, stop, backwards, limit), attributes)

    def arrow(self, keys: "Iterable[K] | Buffer") -> ArrowBatch:
        """An object with `__arrow_c_array__`: columns `key` and `value`, null where a key is absent."""
        return self._arrow(keys)

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Puts many pairs, in batches. Each is put by itself; after an error those before it stay."""
        pairs: Any
        if isinstance(other, Mapping):
            pairs = other.items()
        elif hasattr(other, "keys"):
            pairs = ((key, other[key]) for key in other.keys())
        else:
            pairs = other
        self._put_all(pairs)
        if more:
            self._put_all(more.items())

    def _put_all(self, pairs: Any) -> None:
        pairs = iter(pairs)
        while batch := [(key, value) for key, value in islice(pairs, _BATCH)]:
            self._put_many(batch)

    def copy(self) -> dict[K, V]:
        """All items, in a `dict`: this process then has a copy of its own."""
        return dict(self.items())

    def pop(self, key: K, default: Any = _MISSING) -> Any:
        """Takes an item out. Of several who do so at once one gets it."""
        while True:
            item = self.item(key)
            if item is None:
                if default is _MISSING:
                    raise KeyError(key)
                return default
            if self._delete_if(key, item.version)[0]:
                return self._value_codec_decode(item.value)

    def _value_codec_decode(self, data: bytes) -> V:
        codec = self._value_codec
        if codec.native == "int":
            # Numbers as values have their lowest byte first.
            data = data[::-1]
        return codec.decode(data)

    def popitem(self) -> tuple[K, V]:
        """Takes any item out."""
        while True:
            for key in self.keys(limit=1):
                value = self.pop(key, _MISSING)
                if value is not _MISSING:
                    return key, value
                break
            else:
                raise KeyError("the table is empty")

    def setdefault(self, key: K, default: Any = None) -> Any:
        """The value of a key, which is put if it is absent. Of several who do so at once one puts it."""
        while True:
            try:
                found = self.get(key, _MISSING)
            except NoSuchTable:
                # The write makes it.
                found = _MISSING
            if found is not _MISSING:
                return found
            if self.compare_and_set(key, None, default).done:
                return default

    def put(
        self,
        key: K,
        value: Any = _MISSING,
        *,
        attributes: Mapping[str, bytes] | None = None,
        links: "Mapping[str, Target | Sequence[Target]] | None" = None,
        flags: int = 0,
        expires_in: float | None = None,
        expected: int | None | _Any = ANY,
    ) -> int:
        """Puts an item, and returns its version.

        It may have attributes and links besides a value, or in place of one; 32 bits of flags; and an end, in
        seconds from now. With `expected` it is put if the key has that version (`None`: if it is absent);
        otherwise `VersionMismatch` is raised.
        """
        done, version = self._put_any(key, value, attributes, links, flags, expires_in, expected)
        if not done:
            raise mismatch("put", version, expected)
        assert version is not None
        return version

    def _put_any(
        self,
        key: K,
        value: Any,
        attributes: Mapping[str, bytes] | None,
        links: "Mapping[str, Target | Sequence[Target]] | None",
        flags: int,
        expires_in: float | None,
        expected: int | None | _Any,
    ) -> tuple[bool, int | None]:
        extras = extras_of(value, attributes, links, flags, expires_in)
        conditional = not isinstance(expected, _Any)
        version = None if isinstance(expected, _Any) else expected
        if value is _MISSING:
            return self._put_item(key, extras, conditional, version)
        return self._put(key, value, extras, conditional, version)

    def compare_and_set(
        self,
        key: K,
        expected: int | None,
        value: Any = _MISSING,
        *,
        attributes: Mapping[str, bytes] | None = None,
        links: "Mapping[str, Target | Sequence[Target]] | None" = None,
        flags: int = 0,
        expires_in: float | None = None,
    ) -> Compared:
        """Puts an item if the key has this version (`None`: if it is absent), and says how that ended."""
        return Compared(*self._put_any(key, value, attributes, links, flags, expires_in, expected))

    def delete(self, key: K, *, expected: int | None = None) -> bool:
        """Deletes a key, with `expected` if it has that version. `False`: it was absent."""
        if expected is None:
            return self.discard(key)
        done, version = self._delete_if(key, expected)
        if not done and version is not None:
            raise mismatch("delete", version, expected)
        return done

    def walk(
        self,
        keys: K | Iterable[K],
        links: Sequence[str],
        *,
        depth: int | None = None,
        depth_first: bool = False,
    ) -> Walk:
        """Visits what links of these names lead to, from one key or several, each item once."""
        one = isinstance(keys, (bytes, str, int))
        return self._walk(cast(Any, [keys] if one else keys), list(links), depth, depth_first)


def mismatch(operation: str, found: int | None, expected: object) -> VersionMismatch:
    """The error of a write with an expected version that the key does not have."""
    has = "is absent" if found is None else f"has version {found}"
    wanted = "absent" if expected is None else f"version {expected}"
    error = VersionMismatch(
        f"{operation}: version mismatch: the key {has}, not {wanted}", operation=operation
    )
    error.found = found
    return error


def extras_of(
    value: Any,
    attributes: Mapping[str, bytes] | None,
    links: "Mapping[str, Target | Sequence[Target]] | None",
    flags: int,
    expires_in: float | None,
) -> dict[str, Any]:
    """What is put besides the value."""
    if value is _MISSING and not attributes and not links:
        raise TypeError("an item has a value, attributes or links")
    return {
        "attributes": list((attributes or {}).items()),
        "links": links_of(links),
        "flags": flags,
        "expires_in": expires_in,
    }


def links_of(
    links: "Mapping[str, Target | Sequence[Target]] | None",
) -> list[tuple[str, str, bytes, bytes]]:
    """Links as names, tables, keys and bytes."""
    all: list[tuple[str, str, bytes, bytes]] = []
    for name, targets in (links or {}).items():
        several: Any = [targets] if isinstance(targets, (Link, tuple)) else targets
        for target in several:
            all.append((name, *_target(target)))
    return all


def _target(target: Any) -> tuple[str, bytes, bytes]:
    if isinstance(target, Link):
        if target.table is None:
            raise ValueError("the table that the link leads to was dropped")
        return target.table, target.key, target.data
    table, key, *data = target
    if not isinstance(table, str):
        key, table = table._key_bytes(key), table.name
    elif isinstance(key, str):
        key = key.encode()
    return table, key, data[0] if data else b""
