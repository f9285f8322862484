"""Stores, views and builds."""

import json as _json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

from . import _kelix
from ._kelix import Link
from .codecs import Codec, codec_of, raw
from .queue import Queue
from .table import _BATCH, _MISSING, Table, Target, links_of

if TYPE_CHECKING:
    from .aio import AsyncSession

K = TypeVar("K")
V = TypeVar("V")


class Store:
    """A store, for all threads of a process and of its children: each opens a session of its own.

    Made by `kelix.connect`. It can be pickled: what is unpickled connects to the same address.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._raw = _kelix.Store(**options)

    def __reduce__(self) -> Any:
        return Store, (self._options,)

    def __repr__(self) -> str:
        return f"<kelix.Store {self._options['address'] or 'at the default directory'}>"

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the sessions of all threads. What is used later raises `InvalidArgument`."""
        self._raw.close()

    def __getitem__(self, name: str) -> Table[bytes, bytes]:
        """A table of bytes. The first write makes it, with a hash index, if it is not there."""
        return Table(self, name, None, raw, raw)

    @overload
    def table(self, name: str, *, kind: str | None = None) -> Table[bytes, bytes]: ...
    @overload
    def table(self, name: str, *, key: type[K] | Codec[K], kind: str | None = None) -> Table[K, bytes]: ...
    @overload
    def table(self, name: str, *, value: type[V] | Codec[V], kind: str | None = None) -> Table[bytes, V]: ...
    @overload
    def table(
        self, name: str, *, key: type[K] | Codec[K], value: type[V] | Codec[V], kind: str | None = None
    ) -> Table[K, V]: ...
    def table(
        self,
        name: str,
        *,
        key: Any = raw,
        value: Any = raw,
        kind: str | None = None,
    ) -> Table[Any, Any]:
        """A table with other keys and values than bytes.

        `kind` is what it has to be, and what it is made as: "hash", "ordered" (by bytes), "numbers", or
        "inline" (numbers with 8 bytes each).
        """
        return Table(self, name, kind, codec_of(key), codec_of(value))

    def create(self, name: str, kind: str = "hash") -> Table[bytes, bytes]:
        """Makes a table, if there is none of the name."""
        self._raw.create(name, kind)
        return Table(self, name, kind, raw, raw)

    def tables(self) -> list[str]:
        """The names of the tables."""
        return self._raw.tables()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def __contains__(self, name: object) -> bool:
        return name in self.tables()

    def drop(self, name: str) -> bool:
        """Drops a table with all that is in it. `False`: there was none."""
        return self._raw.drop_table(name)

    def drop_dataset(self, name: str) -> bool:
        """Drops a dataset with its tables. `False`: there was none."""
        return self._raw.drop_dataset(name)

    def view(self, dataset: str) -> "View":
        """The generation of a dataset that is in force now."""
        return View(self, dataset, self._raw.view(dataset))

    def build(self, dataset: str, tables: "Mapping[str, str | NewTable]") -> "Build":
        """Builds a generation of a dataset: its tables, with the kind of each.

        A context manager. At its end the generation is put in force; after an exception nothing is left of
        it.
        """
        return Build(self, dataset, tables)

    def queue(self) -> Queue:
        """A queue of operations that are submitted and polled for, with a session of its own."""
        return Queue(self)

    def aio(self) -> "AsyncSession":
        """A session for the tasks of an event loop: `async with store.aio() as session`."""
        # Most programs have no event loop, and asyncio takes memory and time to import.
        from .aio import AsyncSession

        return AsyncSession(self)

    def statistics(self) -> dict[str, Any]:
        """What the server tells of itself."""
        statistics: dict[str, Any] = _json.loads(self._raw.statistics())
        return statistics

    @property
    def fabric(self) -> str:
        """How this thread reaches the server: "shm", "tcp" or "verbs"."""
        return self._raw.fabric()

    @property
    def is_detached(self) -> bool:
        """Whether the server is known to have gone. Reads go on from its last state."""
        return self._raw.is_detached()

    @property
    def is_mirror(self) -> bool:
        """Whether the server is a mirror: then writes go to the primary, over a connection of its own."""
        return self._raw.is_mirror()

    @property
    def primary(self) -> str | None:
        """Where the server is that the mirror follows, as `HOST:PORT`; `None`: this is no mirror."""
        return self._raw.primary()

    @property
    def lag(self) -> float | None:
        """How many seconds ago the mirror is known to have had all that its primary had.

        `None`: this is no mirror, or it has not heard from its primary yet.
        """
        return self._raw.lag()

    @property
    def cost(self) -> "Cost":
        """What this thread's operations have cost so far."""
        return Cost(*self._raw.cost())


class Cost(NamedTuple):
    """What operations cost."""

    reads: int
    read_bytes: int
    messages: int
    retries: int
    fallbacks: int


class View:
    """Tables of one generation of a dataset, which stays what it is as long as the view is kept and used."""

    def __init__(self, store: Store, dataset: str, view: _kelix.View) -> None:
        self._store = store
        self._raw = view

    def __repr__(self) -> str:
        return f"<kelix.View of generation {self.generation} of {self.dataset!r}>"

    def __reduce__(self) -> Any:
        raise TypeError("a view cannot be pickled: pickle the store, and open a view where it is used")

    def __enter__(self) -> "View":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    @property
    def dataset(self) -> str:
        return self._raw.dataset

    @property
    def generation(self) -> int:
        return self._raw.generation

    def tables(self) -> list[str]:
        return self._raw.tables()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def __contains__(self, name: object) -> bool:
        return name in self.tables()

    def __getitem__(self, name: str) -> Table[bytes, bytes]:
        return Table(self, name, None, raw, raw)

    @overload
    def table(self, name: str) -> Table[bytes, bytes]: ...
    @overload
    def table(self, name: str, *, key: type[K] | Codec[K]) -> Table[K, bytes]: ...
    @overload
    def table(self, name: str, *, value: type[V] | Codec[V]) -> Table[bytes, V]: ...
    @overload
    def table(self, name: str, *, key: type[K] | Codec[K], value: type[V] | Codec[V]) -> Table[K, V]: ...
    def table(self, name: str, *, key: Any = raw, value: Any = raw) -> Table[Any, Any]:
        """A table with other keys and values than bytes."""
        return Table(self, name, None, codec_of(key), codec_of(value))


class NewTable(NamedTuple):
    """A table that is to be built."""

    kind: str = "hash"
    #: Clients may write to it once it is in force.
    overlay: bool = False


class Built(NamedTuple):
    """What was built."""

    generation: int
    items: int
    links: int
    overlays: int
    #: Links whose target is not there.
    dangling: int


class Build:
    """A generation that is being built."""

    def __init__(self, store: Store, dataset: str, tables: "Mapping[str, str | NewTable]") -> None:
        new = {
            name: table if isinstance(table, NewTable) else NewTable(table) for name, table in tables.items()
        }
        self._raw = _kelix.Build(store._raw, dataset, [(name, *table) for name, table in new.items()])
        self._names = self._raw.tables()
        #: What was built, once it is in force.
        self.built: Built | None = None

    def __enter__(self) -> "Build":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.built is not None:
            return
        if kind is None:
            self.finish()
        else:
            self.abandon()

    def finish(self) -> Built:
        """Puts the generation in force."""
        self.built = Built(*self._raw.finish())
        return self.built

    def abandon(self) -> None:
        """Gives the build up."""
        self._raw.abandon()

    def __getitem__(self, name: str) -> "BuildTable[bytes, bytes]":
        return BuildTable(self, name, raw, raw)

    @overload
    def table(self, name: str) -> "BuildTable[bytes, bytes]": ...
    @overload
    def table(self, name: str, *, key: type[K] | Codec[K]) -> "BuildTable[K, bytes]": ...
    @overload
    def table(self, name: str, *, value: type[V] | Codec[V]) -> "BuildTable[bytes, V]": ...
    @overload
    def table(
        self, name: str, *, key: type[K] | Codec[K], value: type[V] | Codec[V]
    ) -> "BuildTable[K, V]": ...
    def table(self, name: str, *, key: Any = raw, value: Any = raw) -> "BuildTable[Any, Any]":
        """One of the tables, with other keys and values than bytes."""
        return BuildTable(self, name, codec_of(key), codec_of(value))


class BuildTable(Generic[K, V]):
    """A table of a generation that is being built: it is written, and read once it is in force."""

    def __init__(self, build: Build, name: str, key: Codec[K], value: Codec[V]) -> None:
        if name not in build._names:
            raise KeyError(name)
        self._build = build
        self._index = build._names.index(name)
        self._key = key
        self._value = value
        self.name = name

    def __setitem__(self, key: K, value: V) -> None:
        self._build._raw.put_many(self._index, [(key, value)], self._key, self._value)

    def update(self, pairs: "Mapping[K, V] | Iterable[tuple[K, V]]") -> None:
        """Puts many pairs. A key comes once in a generation."""
        each = iter(pairs.items() if isinstance(pairs, Mapping) else pairs)
        while batch := [(key, value) for key, value in islice(each, _BATCH)]:
            self._build._raw.put_many(self._index, batch, self._key, self._value)

    def put(
        self,
        key: K,
        value: Any = _MISSING,
        *,
        attributes: Mapping[str, bytes] | None = None,
        links: "Mapping[str, Target | Sequence[Target]] | None" = None,
        flags: int = 0,
        expires_in: float | None = None,
    ) -> None:
        """Puts an item with attributes and links. Their targets may come later."""
        body = None if value is _MISSING else encode(self._value, value, little=True)
        self._build._raw.put_item(
            self._index,
            encode(self._key, key),
            body,
            list((attributes or {}).items()),
            links_of(links),
            flags,
            expires_in,
        )

    def _key_bytes(self, key: K) -> bytes:
        return encode(self._key, key)


def encode(codec: Codec[Any], value: Any, *, little: bool = False) -> bytes:
    """The bytes of a key, or of a value, whose numbers have their lowest byte first."""
    data = bytes(codec.encode(value))
    return data[::-1] if little and codec.native == "int" else data


def connect(
    address: "str | os.PathLike[str] | None" = None,
    *,
    namespace: str = "",
    token: str | None = None,
    timeout: float = 0.9,
    retry_for: float = 0.0,
    durable: bool = False,
    fabric: str | None = None,
    private_caches: bool = False,
    own_writes: bool = True,
    max_lag: float | None = None,
    strict: bool = False,
    tls: "str | os.PathLike[str] | None" = None,
    certificate: "str | os.PathLike[str] | None" = None,
    key: "str | os.PathLike[str] | None" = None,
) -> Store:
    """Connects to a store.

    `address` is a run directory, or `HOST:PORT`; without it the default directory. `timeout` is how many
    seconds a request may take, and `retry_for` for how many more a session tries to connect again: with
    0 not at all, and at the primary of a cluster for 10. With `durable` writes are on the server's disk
    before they return. `fabric` insists on "shm", "tcp" or "verbs".
    On a mirror a thread finds its own writes, since what it has written or seen at the primary is read there
    until the mirror has it; without `own_writes` the mirror is read whatever that has. `max_lag` is how many
    seconds old what is read there may be: a read of what is older raises `Unavailable`. With `strict` all
    reads go to the primary, too, and at a cluster on several hosts are answered by the word of its register, so
    that they believe no clock.
    `tls` is a file of certificates of servers that are believed; `certificate` and `key` are this client's
    own.
    """
    paths = {"address": address, "tls": tls, "certificate": certificate, "key": key}
    texts = {name: None if path is None else os.fspath(path) for name, path in paths.items()}
    return Store(
        {
            "namespace": namespace,
            "token": token,
            "timeout": timeout,
            "retry_for": retry_for,
            "durable": durable,
            "fabric": fabric,
            "private_caches": private_caches,
            "own_writes": own_writes,
            "max_lag": max_lag,
            "strict": strict,
            **texts,
        }
    )
