"""asyncio: a session that the tasks of an event loop share.

An operation is submitted to a queue, and its future ends when a poll brings the completion. All operations
that tasks submit in one round of the loop begin together, with one poll. While something is under way the
loop watches the queue's descriptor, and a timer polls besides: an operation that is not answered in time ends
in a poll, though nothing becomes readable.

A task that is cancelled abandons its operation: nobody gets the answer, and a write may be done or not.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, overload

from ._kelix import Completion, Item, Page
from .errors import Unavailable
from .queue import Queue
from .table import _MISSING, ANY, Compared, Table, Target, _Any, mismatch

if TYPE_CHECKING:
    from .store import Store

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

# Seconds between two polls while answers are waited for, at most and at least.
_INTERVAL_MAX = 0.25
_INTERVAL_MIN = 0.001
# Seconds between two tries to connect again.
_BETWEEN_TRIES = 0.02


class AsyncSession:
    """A session of a store for the tasks of one event loop.

    Made by `store.aio()`, and used in `async with`, which opens and closes it. A get of what stands in shared
    memory is done at once, without a trip through the loop; all else is a message whose answer the loop waits
    for. The first use of a table opens it, which waits for the server once.
    """

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._queue: Queue | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._interval = min(max(store._options["timeout"] / 4, _INTERVAL_MIN), _INTERVAL_MAX)
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        # A duplicate of the queue's descriptor, which stays open until the loop does not watch it any more;
        # and of which connection it is.
        self._watched: tuple[int, int] | None = None

    async def __aenter__(self) -> Self:
        if self._queue is not None:
            raise RuntimeError("the session is open already")
        self._loop = asyncio.get_running_loop()
        self._queue = await self._loop.run_in_executor(None, self._store.queue)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<kelix.AsyncSession of {self._store!r}>"

    def __len__(self) -> int:
        """How many operations tasks wait for."""
        return len(self._waiting)

    def __bool__(self) -> bool:
        return True

    def close(self) -> None:
        """Ends the session. Tasks that wait for something get `Unavailable`: a write may be done or not."""
        queue, self._queue = self._queue, None
        if queue is None:
            return
        self._unwatch()
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        queue.close()
        self._fail(
            lambda: Unavailable(
                "close: unavailable: the session was closed", effect="unknown", operation="close"
            )
        )

    @overload
    async def get(self, table: Table[K, V], key: K) -> V | None: ...
    @overload
    async def get(self, table: Table[K, V], key: K, default: V | D) -> V | D: ...
    async def get(self, table: Table[Any, Any], key: Any, default: Any = None) -> Any:
        """The value of a key, or `default` where the key is absent."""
        found = self._try_get(table, key)
        if found is None:
            found = _value_of(table, await self._submit(partial(_submit_item, table, key)))
        return found[0] if found else default

    async def multi_get(self, table: Table[K, V], keys: Iterable[K]) -> list[V | None]:
        """The values of many keys, in order; `None` where one is absent. They are looked for at the same
        time.
        """
        found: list[Any] = []
        submitted: list[tuple[int, asyncio.Future[Item | None]]] = []
        try:
            for key in keys:
                at_once = self._try_get(table, key)
                if at_once is None:
                    future = self._submit(partial(_submit_item, table, key))
                    submitted.append((len(found), future))
                found.append(at_once[0] if at_once else None)
            for at, future in submitted:
                value = _value_of(table, await future)
                found[at] = value[0] if value else None
        finally:
            for _, future in submitted:
                future.cancel()
        return found

    async def item(self, table: Table[K, Any], key: K) -> Item | None:
        """The item with attributes, links, version and flags; `None`: it is absent."""
        item: Item | None = await self._submit(partial(_submit_item, table, key))
        return item

    async def follow(self, item: Item, name: str) -> Item | None:
        """The item that the first link of a name leads to; `None`: it is not there."""
        found: Item | None = await self._submit(lambda queue, number: queue.follow(item, name, number))
        return found

    async def put(
        self,
        table: Table[K, Any],
        key: K,
        value: Any = _MISSING,
        *,
        attributes: Mapping[str, bytes] | None = None,
        links: "Mapping[str, Target | Sequence[Target]] | None" = None,
        flags: int = 0,
        expires_in: float | None = None,
        expected: int | None | _Any = ANY,
    ) -> int:
        """Puts an item, and returns its version; as `Table.put`."""
        ended = await self._put(table, key, value, attributes, links, flags, expires_in, expected)
        if isinstance(ended, Compared):
            if not ended.done:
                raise mismatch("put", ended.version, expected)
            ended = ended.version
        return cast(int, ended)

    async def compare_and_set(
        self,
        table: Table[K, Any],
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
        return cast(
            Compared, await self._put(table, key, value, attributes, links, flags, expires_in, expected)
        )

    async def delete(self, table: Table[K, Any], key: K, *, expected: int | None = None) -> bool:
        """Deletes a key, with `expected` if it has that version. `False`: it was absent."""
        if expected is None:
            return bool(await self._submit(lambda queue, number: queue.delete(table, key, number)))
        ended: Compared = await self._submit(
            lambda queue, number: queue.compare_and_delete(table, key, expected, number)
        )
        if not ended.done and ended.version is not None:
            raise mismatch("delete", ended.version, expected)
        return ended.done

    async def scan(
        self,
        table: Table[K, V],
        *,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[tuple[K, V]]:
        """Pairs of keys and values, or those of a range, page by page."""
        page: Page = await self._submit(
            lambda queue, number: queue.scan(
                table, number, prefix=prefix, start=start, stop=stop, backwards=backwards, limit=limit
            )
        )
        while True:
            for pair in page.pairs():
                yield pair
            if page.is_last:
                return
            page = await self._submit(partial(_submit_page, page))

    async def _put(
        self,
        table: Table[Any, Any],
        key: Any,
        value: Any,
        attributes: Mapping[str, bytes] | None,
        links: "Mapping[str, Target | Sequence[Target]] | None",
        flags: int,
        expires_in: float | None,
        expected: int | None | _Any,
    ) -> Any:
        def submit(queue: Queue, number: int) -> None:
            if value is _MISSING or attributes or links or flags or expires_in is not None:
                parts: dict[str, Any] = {"attributes": attributes, "links": links, "flags": flags}
                queue.put_item(table, key, number, value, **parts, expires_in=expires_in, expected=expected)
            elif isinstance(expected, _Any):
                queue.put(table, key, value, number)
            else:
                queue.compare_and_set(table, key, expected, value, number)

        return await self._submit(submit)

    def _opened(self) -> tuple[Queue, asyncio.AbstractEventLoop]:
        if self._queue is None or self._loop is None:
            raise RuntimeError("the session is not open: use it in `async with store.aio() as session`")
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("the session is of another event loop: open another one there")
        return self._queue, self._loop

    def _try_get(self, table: Table[Any, Any], key: Any) -> tuple[Any] | tuple[()] | None:
        queue, _ = self._opened()
        found = queue._try_get(table, key)
        if found is not None and len(queue):
            # The session has done something since the last poll, so its descriptor announces nothing.
            self._turn_soon()
        return found

    def _submit(self, submit: Callable[[Queue, int], None]) -> "asyncio.Future[Any]":
        queue, loop = self._opened()
        self._number += 1
        submit(queue, self._number)
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting[self._number] = future
        self._turn_soon()
        return future

    def _turn_soon(self) -> None:
        queue, loop = self._opened()
        if queue.is_detached and self._store._options["retry_for"] > 0:
            # A poll would wait for its next try to connect again: the timer polls when it is time.
            self._watch()
        elif self._soon is None:
            self._soon = loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Polls until there is nothing more: only then the descriptor tells of what comes."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._queue is None:
            return
        try:
            while ended := self._queue.poll():
                for completion in ended:
                    self._end(completion)
            self._watch()
        except Exception as error:
            self._unwatch()
            self._fail(lambda: error)

    def _end(self, completion: Completion) -> None:
        future = self._waiting.pop(completion.number, None)
        if future is None or future.done():
            return
        try:
            future.set_result(completion.result())
        except Exception as error:
            future.set_exception(error)

    def _fail(self, error: Callable[[], Exception]) -> None:
        """Ends all that tasks wait for."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error())

    def _watch(self) -> None:
        """Watches the descriptor and the time, for as long as something is under way."""
        queue, loop = self._queue, self._loop
        if queue is None or loop is None or len(queue) == 0:
            self._unwatch()
            return
        interval = self._interval
        if queue.is_detached:
            # The descriptor of a connection that is over is always readable.
            self._unwatch()
            interval = _BETWEEN_TRIES
        else:
            connection = queue.past_connections
            if self._watched is not None and self._watched[1] != connection:
                self._unwatch()
            if self._watched is None:
                try:
                    descriptor = os.dup(queue.fileno())
                except OSError:
                    # No descriptor is left for a duplicate: short waits take its place.
                    interval = _INTERVAL_MIN
                else:
                    self._watched = (descriptor, connection)
                    loop.add_reader(descriptor, self._turn)
        if self._timer is None:
            self._timer = loop.call_later(interval, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._turn()

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._watched is not None and self._loop is not None:
            descriptor, self._watched = self._watched[0], None
            self._loop.remove_reader(descriptor)
            os.close(descriptor)


def _submit_item(table: Table[Any, Any], key: Any, queue: Queue, number: int) -> None:
    queue.item(table, key, number)


def _submit_page(page: Page, queue: Queue, number: int) -> None:
    queue.next_page(page, number)


def _value_of(table: Table[Any, Any], item: Item | None) -> tuple[Any] | tuple[()]:
    return () if item is None else (table._value_codec_decode(item.value),)
