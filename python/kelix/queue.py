"""Submitting and polling."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from . import _kelix
from .table import _MISSING, ANY, Range, Table, Target, _Any, extras_of

if TYPE_CHECKING:
    from .store import Store


class Queue(_kelix.Queue):
    """Operations that go on while their caller does something else.

    Made by `store.queue()`. It has a session of its own, and is for one thread at a time. Each operation gets
    a number of the caller's, which its completion has; what was submitted begins with the next `poll`.
    """

    __slots__ = ()

    def __new__(cls, store: "Store") -> Self:
        return super().__new__(cls, store._raw)

    def __reduce__(self) -> Any:
        raise TypeError("a queue cannot be pickled: pickle the store, and open a queue where it is used")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def put_item(
        self,
        table: Table[Any, Any],
        key: Any,
        number: int,
        value: Any = _MISSING,
        *,
        attributes: Mapping[str, bytes] | None = None,
        links: "Mapping[str, Target | Sequence[Target]] | None" = None,
        flags: int = 0,
        expires_in: float | None = None,
        expected: int | None | _Any = ANY,
    ) -> None:
        """Submits a put of an item with all that can belong to it.

        Its result is the version; with `expected` a `Compared`, as of `compare_and_set`. It waits where the
        server has yet to be asked for the number of an attribute's name.
        """
        extras = extras_of(value, attributes, links, flags, expires_in)
        conditional = not isinstance(expected, _Any)
        version = None if isinstance(expected, _Any) else expected
        body = None if value is _MISSING else (value,)
        self._put_item(table, key, body, extras, conditional, version, number)

    def scan(
        self,
        table: Table[Any, Any],
        number: int,
        *,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> None:
        """Submits the first page of a scan. Its result is a `Page`, and `next_page` submits the one behind
        it.
        """
        self._scan(table, Range(prefix, start, stop, backwards, limit).parts(), number)
