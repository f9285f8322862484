"""The exceptions of Kelix: one base, and a class for each kind of error.

Each says what a caller wants to know: its kind, whether the same call may succeed later, whether a write took
effect, which operation it was, and how many bytes a value has that did not fit.
"""

from typing import Any, Literal

Effect = Literal["no", "yes", "unknown"]


class Error(Exception):
    """An operation failed."""

    kind: str = "error"
    retry: bool
    effect: Effect
    operation: str
    needed_bytes: int | None

    def __init__(
        self,
        message: str = "",
        retry: bool = False,
        effect: Effect = "no",
        operation: str = "",
        needed_bytes: int | None = None,
    ) -> None:
        super().__init__(message)
        self.retry = retry
        self.effect = effect
        self.operation = operation
        self.needed_bytes = needed_bytes

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.retry, self.effect, self.operation, self.needed_bytes)


class InvalidArgument(Error, ValueError):
    """An argument breaks a limit or makes no sense. Nothing was sent."""

    kind = "invalid argument"


class NoSuchTable(Error, LookupError):
    """There is no such table or dataset. Not a `KeyError`, which `get` would take for an absent key."""

    kind = "no such table"


class NoSuchAttribute(Error, LookupError):
    """The item has no such attribute or link."""

    kind = "no such attribute"


class BufferTooSmall(Error, ValueError):
    """A value is longer than the memory for it: `needed_bytes`."""

    kind = "buffer too small"


class OutOfMemory(Error, MemoryError):
    """The store has no room."""

    kind = "out of memory"


class Unavailable(Error, ConnectionError):
    """No server answers, or it has gone."""

    kind = "unavailable"


class TimedOut(Error, TimeoutError):
    """The server did not answer in time."""

    kind = "timed out"


class Superseded(Error, ConnectionError):
    """Another server has taken over."""

    kind = "superseded"


class ViewExpired(Error):
    """The generation that a view was of is not there any more."""

    kind = "view expired"


class Frozen(Error):
    """A loaded table takes no writes for a moment: its next generation is about to come into force."""

    kind = "frozen"


class Incompatible(Error):
    """The other side is of another version."""

    kind = "incompatible"


class Damaged(Error):
    """A file is not what was written."""

    kind = "damaged"


class ProtocolError(Error):
    """The other side broke the protocol."""

    kind = "protocol error"


class Denied(Error, PermissionError):
    """The server does not let this client do that."""

    kind = "denied"


class RefusedBySystem(Error, OSError):
    """The system refused: permission, descriptors, memory."""

    kind = "system error"


class Forked(Error, RuntimeError):
    """A session is of the process that forked this one."""

    kind = "forked"


class Internal(Error, RuntimeError):
    """A fault of Kelix. What was being done may have been done."""

    kind = "internal"


class VersionMismatch(Error):
    """A key has another version than was expected: `found`, which is `None` where the key is absent."""

    kind = "version mismatch"
    found: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__(), {"found": self.found})


_KINDS: dict[str, type[Error]] = {
    kind.kind: kind
    for kind in (
        InvalidArgument,
        NoSuchTable,
        NoSuchAttribute,
        BufferTooSmall,
        OutOfMemory,
        Unavailable,
        TimedOut,
        Superseded,
        ViewExpired,
        Frozen,
        Incompatible,
        Damaged,
        ProtocolError,
        Denied,
        RefusedBySystem,
        Forked,
        Internal,
    )
}


def _make(
    kind: str, message: str, retry: bool, effect: Effect, operation: str, needed_bytes: int | None
) -> Error:
    if kind in _KINDS:
        return _KINDS[kind](message, retry, effect, operation, needed_bytes)
    # A kind that is newer than this file.
    error = Error(message, retry, effect, operation, needed_bytes)
    error.kind = kind
    return error
