"""How keys and values become bytes and bytes become them again."""

import json as _json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Codec(Generic[T]):
    """A pair of functions: `decode(encode(x)) == x`. Of keys, equal ones have to have equal bytes.

    It can be pickled if its functions can.
    """

    __slots__ = ("encode", "decode", "native")

    def __init__(
        self, encode: Callable[[T], bytes], decode: Callable[[bytes], T], *, native: str | None = None
    ) -> None:
        self.encode = encode
        self.decode = decode
        # What is built into the extension module goes without a call of a function.
        self.native = native

    def __reduce__(self) -> Any:
        if self.native is not None:
            return _native, (self.native,)
        return type(self), (self.encode, self.decode)

    def __repr__(self) -> str:
        return f"Codec({self.native or self.encode!r})"


def _encode_json(value: Any) -> bytes:
    return _json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def _decode_json(data: bytes) -> Any:
    return _json.loads(data)


def _same(data: bytes) -> bytes:
    return data


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _number_bytes(number: int) -> bytes:
    return number.to_bytes(8, "big")


raw: Codec[bytes] = Codec(_same, _same, native="bytes")
text: Codec[str] = Codec(str.encode, bytes.decode, native="str")
number: Codec[int] = Codec(_number_bytes, _number, native="int")
json: Codec[Any] = Codec(_encode_json, _decode_json)

_NATIVE: dict[str, Codec[Any]] = {"bytes": raw, "str": text, "int": number}


def _native(name: str) -> Codec[Any]:
    return _NATIVE[name]


def codec_of(what: type[T] | Codec[T]) -> Codec[T]:
    """The codec that `bytes`, `str`, `int` or a codec stands for."""
    if isinstance(what, Codec):
        return what
    name = getattr(what, "__name__", "")
    if what not in (bytes, str, int):
        raise TypeError(f"{what!r} is no codec: there are bytes, str, int, kelix.json and kelix.Codec")
    return _NATIVE[name]
