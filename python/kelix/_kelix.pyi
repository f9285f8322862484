"""The extension module: what of the package is written in Rust."""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, Self, TypeVar, overload

from typing_extensions import Buffer

from .codecs import Codec
from .errors import Error

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

def _forked() -> None: ...

class Store:
    def __new__(
        cls,
        address: str | None,
        *,
        namespace: str,
        token: str | None,
        timeout: float,
        retry_for: float,
        durable: bool,
        fabric: str | None,
        private_caches: bool,
        own_writes: bool,
        max_lag: float | None,
        strict: bool,
        tls: str | None,
        certificate: str | None,
        key: str | None,
    ) -> Store: ...
    def create(self, name: str, kind: str) -> None: ...
    def tables(self) -> list[str]: ...
    def drop_table(self, name: str) -> bool: ...
    def drop_dataset(self, name: str) -> bool: ...
    def view(self, dataset: str) -> View: ...
    def statistics(self) -> str: ...
    def fabric(self) -> str: ...
    def is_detached(self) -> bool: ...
    def is_mirror(self) -> bool: ...
    def primary(self) -> str | None: ...
    def lag(self) -> float | None: ...
    def cost(self) -> tuple[int, int, int, int, int]: ...
    def close(self) -> None: ...

class View:
    @property
    def dataset(self) -> str: ...
    @property
    def generation(self) -> int: ...
    def tables(self) -> list[str]: ...

class Build:
    def __new__(cls, store: Store, dataset: str, tables: list[tuple[str, str, bool]]) -> Build: ...
    def tables(self) -> list[str]: ...
    def put_many(
        self, table: int, pairs: list[tuple[Any, Any]], key: Codec[Any], value: Codec[Any]
    ) -> None: ...
    def put_item(
        self,
        table: int,
        key: bytes,
        value: bytes | None,
        attributes: list[tuple[str, bytes]],
        links: list[tuple[str, str, bytes, bytes]],
        flags: int,
        expires_in: float | None,
    ) -> None: ...
    def finish(self) -> tuple[int, int, int, int, int]: ...
    def abandon(self) -> None: ...

class Link:
    """A link of an item."""

    def __new__(cls, table: str | None, key: bytes, data: bytes = b"") -> Link: ...
    @property
    def table(self) -> str | None:
        """The name of the table that it leads to; `None`: that was dropped."""
    @property
    def key(self) -> bytes:
        """The key that it leads to."""
    @property
    def data(self) -> bytes:
        """Its own bytes."""

class Item:
    """An item as it was read: a copy of one version."""

    @property
    def key(self) -> bytes: ...
    @property
    def value(self) -> bytes: ...
    @property
    def version(self) -> int: ...
    @property
    def flags(self) -> int: ...
    @property
    def expires_ns(self) -> int | None:
        """When it ends, in nanoseconds since 1970; `None`: never."""
    @property
    def attributes(self) -> dict[str, bytes]:
        """The attributes that are bytes: of each name the first."""
    @property
    def links(self) -> dict[str, list[Link]]: ...
    def follow(self, name: str) -> Item | None:
        """The item that the first link of a name leads to; `None`: it is not there."""
    def follow_all(self, name: str) -> list[Item | None]:
        """The items that all links of a name lead to, in order."""

class Visit:
    """An item that a walk has come to."""

    @property
    def item(self) -> Item: ...
    @property
    def number(self) -> int: ...
    @property
    def origin(self) -> int | None:
        """The number of the item whose link led here; `None` where the walk began."""
    @property
    def depth(self) -> int: ...

class Walk(Iterator[Visit]):
    """A walk along links."""

    def __next__(self) -> Visit: ...
    def turn_back(self, visit: Visit) -> None:
        """The walk does not go along the links of this item, if it has not gone there yet."""

class Rows(Iterator[Any]):
    def __next__(self) -> Any: ...

class ArrowBatch:
    """Keys and their values, for whatever reads Arrow."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __len__(self) -> int: ...

class ArrowScan:
    """A scan, for whatever reads Arrow. Each reading is a new scan."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Table(Generic[K, V]):
    def __new__(
        cls, of: Store | View, name: str, kind: str | None, key: Codec[Any], value: Codec[Any]
    ) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str:
        """What the table holds: "hash", "ordered", "numbers" or "inline"."""
    def __getitem__(self, key: K) -> V: ...
    def __setitem__(self, key: K, value: V) -> None: ...
    def __delitem__(self, key: K) -> None: ...
    def __contains__(self, key: object) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[K]: ...
    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D, /) -> V | D: ...
    def discard(self, key: K) -> bool:
        """Deletes a key. `False`: it was absent."""
    def clear(self) -> None:
        """Deletes all keys that are there when their turn comes."""
    def item(self, key: K) -> Item | None:
        """The item with attributes, links, version and flags; `None`: it is absent."""
    def get_into(self, key: K, buffer: Any) -> int | None:
        """Copies a value into writable memory. Returns how many bytes it has; `None`: the key is absent.

        `BufferTooSmall` says by `needed_bytes` how many bytes it would take, and then nothing was written.
        """
    def value_bytes(self, key: K) -> int | None:
        """How many bytes a value has; `None`: the key is absent. The value is not read."""
    def get_range(self, key: K, start: int, length: int) -> bytes | None:
        """Bytes of a value, from a place in it on; `None`: the key is absent."""
    def multi_get(self, keys: Iterable[K] | Buffer) -> list[V | None]:
        """The values of many keys, in order; `None` where one is absent.

        Keys are a sequence; or an array of uint8 with a key a row, of a table of bytes, or one of uint64, of
        numbers.
        """
    def multi_item(self, keys: Iterable[K] | Buffer) -> list[Item | None]:
        """The items of many keys, in order; `None` where one is absent."""
    def rows(self, keys: Iterable[K] | Buffer, out: Any) -> bytearray:
        """Copies values into the rows of writable memory: zeros, and 0 in what is returned, where a key is
        absent.
        """
    def attribute_names(self) -> list[str]:
        """The names of attributes and links that items of the table have had."""
    def _rows(self, what: str, range: dict[str, Any]) -> Rows: ...
    def _count(self, range: dict[str, Any]) -> int: ...
    def _put(
        self, key: K, value: V, extras: dict[str, Any], conditional: bool, expected: int | None
    ) -> tuple[bool, int | None]: ...
    def _put_item(
        self, key: K, extras: dict[str, Any], conditional: bool, expected: int | None
    ) -> tuple[bool, int | None]: ...
    def _put_many(self, pairs: list[tuple[K, V]]) -> None: ...
    def _delete_if(self, key: K, expected: int) -> tuple[bool, int | None]: ...
    def _walk(self, keys: Iterable[Any], links: list[str], depth: int | None, depth_first: bool) -> Walk: ...
    def _arrow(self, keys: Iterable[K] | Buffer) -> ArrowBatch: ...
    def _arrow_scan(self, range: dict[str, Any], attributes: list[str]) -> ArrowScan: ...
    def _key_bytes(self, key: K) -> bytes: ...

class Completion:
    """A submitted operation that has ended."""

    @property
    def number(self) -> int:
        """The number that its caller gave it."""
    @property
    def error(self) -> Error | None:
        """The error with which it failed; `None`: it did not."""
    def result(self) -> Any:
        """What it brought; raises the error with which it failed.

        Of `get` the value, or `None`; of `item` and `follow` the `Item`, or `None`; of puts the version; of
        `delete` whether the key was there; of what has an expected version a `Compared`; of scans a `Page`.
        """

class Page:
    """A page of a scan."""

    def pairs(self) -> list[tuple[Any, Any]]:
        """The pairs of keys and values."""
    @property
    def is_last(self) -> bool:
        """Whether no page comes behind this one."""
    def __len__(self) -> int: ...

class Queue:
    def __new__(cls, store: Store) -> Self: ...
    def get(self, table: Table[K, Any], key: K, number: int) -> None:
        """Submits a get: its result is the value, `None` where the key is absent."""
    def item(self, table: Table[K, Any], key: K, number: int) -> None:
        """Submits a get of an item."""
    def put(self, table: Table[K, V], key: K, value: V, number: int) -> None:
        """Submits a put: its result is the version."""
    def delete(self, table: Table[K, Any], key: K, number: int) -> None:
        """Submits a delete: its result is whether the key was there."""
    def compare_and_set(
        self, table: Table[K, V], key: K, expected: int | None, value: V, number: int
    ) -> None:
        """Submits a put that is done if the key has this version (`None`: if it is absent)."""
    def compare_and_delete(self, table: Table[K, Any], key: K, expected: int, number: int) -> None:
        """Submits a delete that is done if the key has this version."""
    def follow(self, item: Item, name: str, number: int) -> None:
        """Submits the read of what an item's first link of a name leads to."""
    def next_page(self, page: Page, number: int) -> None:
        """Submits the page behind one, which is not the last."""
    def poll(self, most: int | None = None) -> list[Completion]:
        """Begins what was submitted, and returns what has ended: `most` completions at most.

        It waits only to send a value of more than 32 KiB. After a poll that brought nothing `fileno` becomes
        readable when there is more; wait with a time-out, since what is not answered in time ends with the
        next poll after that.
        """
    def fileno(self) -> int: ...
    @property
    def past_connections(self) -> int:
        """How many connections there were before this one: when that has grown, `fileno` is another."""
    @property
    def is_detached(self) -> bool:
        """Whether the connection is lost, and no other one is made yet."""
    def __len__(self) -> int:
        """How many operations no poll has brought yet."""
    def close(self) -> None:
        """Ends the queue's session. What is under way is given up: a write may be done or not."""
    def _put_item(
        self,
        table: Table[K, Any],
        key: K,
        value: tuple[Any] | None,
        extras: dict[str, Any],
        conditional: bool,
        expected: int | None,
        number: int,
    ) -> None: ...
    def _scan(self, table: Table[Any, Any], range: dict[str, Any], number: int) -> None: ...
    def _try_get(self, table: Table[K, V], key: K) -> tuple[V] | tuple[()] | None: ...
