"""The script of operations that each language's binding runs (`tests/script`), in Python."""

import os
import re
import select
import unittest
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow
from support import REPOSITORY, Server

import kelix

SCRIPT = Path(os.environ.get("KELIX_SCRIPT", REPOSITORY / "tests" / "script" / "operations.txt"))
WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"|((?:[^ "]|(?<=.)")+)')
ESCAPE = re.compile(rb"\\(?:x([0-9a-f]{2})|(.))", re.S)


class NoSuchOperation(Exception):
    """The script asks for what this runner does not know."""


def pattern(length: int) -> bytes:
    return bytes((at ^ at >> 8 ^ at >> 16) & 0xFF for at in range(length))


def expand(word: bytes) -> bytes:
    """The bytes that a word without quotes stands for."""
    match word.split(b":"):
        case [b"pattern", length]:
            return pattern(int(length))
        case [b"tail", length, last]:
            return pattern(int(length))[-int(last) :]
        case [b"long-key", length]:
            return b"k" * int(length)
    return word


def words(line: str) -> list[bytes]:
    found = []
    for quoted, plain in WORD.findall(line.encode()):
        if plain:
            found.append(expand(plain))
        else:
            found.append(
                ESCAPE.sub(
                    lambda escape: bytes.fromhex(escape[1].decode()) if escape[1] else escape[2], quoted
                )
            )
    return found


def kind_of(word: bytes) -> str:
    # Python's word for tables of strings that are in order.
    return {"strings": "ordered"}.get(word.decode(), word.decode())


def some(found: Any, absent: bytes = b"absent") -> bytes:
    return absent if found is None else bytes(found)


def yes(is_so: bool) -> list[bytes]:
    return [b"yes" if is_so else b"no"]


def text(number: int) -> bytes:
    return b"%d" % number


class Runner:
    """Runs lines, and keeps what they name."""

    def __init__(self, store: kelix.Store) -> None:
        self.store = store
        self.versions: dict[bytes, bytes] = {}
        self.views: dict[bytes, kelix.View] = {}
        self.build: Any = None
        self.queue = store.queue()

    def table(self, name: bytes) -> Any:
        return self.store[name.decode()]

    def has_numbers(self, name: bytes) -> bool:
        return self.table(name).kind in ("numbers", "inline")

    def key(self, name: bytes, word: bytes) -> bytes:
        """A key of a table as its bytes."""
        return int(word).to_bytes(8) if word.isdigit() and self.has_numbers(name) else word

    def shown(self, name: bytes, key: bytes) -> bytes:
        """The same as a word."""
        return text(int.from_bytes(key)) if len(key) == 8 and self.has_numbers(name) else key

    def version(self, word: bytes) -> int | None:
        return None if word == b"absent" else int(self.versions[word])

    def range(self, name: bytes, options: tuple[bytes, ...]) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        for option in options:
            match option.split(b"=", 1):
                case [b"prefix", prefix]:
                    parts["prefix"] = prefix
                case [b"from", key]:
                    parts["start"] = self.key(name, key)
                case [b"to", key]:
                    parts["stop"] = self.key(name, key)
                case [b"limit", limit]:
                    parts["limit"] = int(limit)
                case [b"backwards"]:
                    parts["backwards"] = True
                case _:
                    raise NoSuchOperation(option)
        return parts

    def pairs(self, name: bytes, pairs: Any) -> list[bytes]:
        return [self.shown(name, key) + b"=" + value for key, value in pairs]

    def compared(self, compared: tuple[bool, int | None]) -> list[bytes]:
        done, version = compared
        if done:
            return [b"done"] + ([text(version)] if version is not None else [])
        return [b"mismatch", b"absent" if version is None else text(version)]

    def poll_all(self) -> Iterator[kelix.Completion]:
        while len(self.queue):
            ended = self.queue.poll(1)
            if not ended:
                select.select([self.queue], [], [], 0.2)
            yield from ended

    def run(self, operation: bytes, *arguments: bytes) -> list[bytes]:
        store = self.store
        match operation, *arguments:
            case b"create", name, kind:
                store.create(name.decode(), kind_of(kind))
                return [b"ok"]
            case b"open", name:
                self.table(name).kind
                return [b"ok"]
            case b"drop", name:
                return yes(store.drop(name.decode()))
            case (b"tables",):
                return [name.encode() for name in sorted(store.tables())]
            case b"put", name, key, value, *options:
                extras = {option.split(b"=")[0]: int(option.split(b"=")[1]) for option in options}
                ends = extras.get(b"ends")
                flags = extras.get(b"flags", 0)
                return [text(self.table(name).put(self.key(name, key), value, flags=flags, expires_in=ends))]
            case b"get", name, key:
                return [some(self.table(name).get(self.key(name, key)))]
            case b"delete", name, key:
                return yes(self.table(name).delete(self.key(name, key)))
            case (b"version" | b"flags" | b"ends") as part, name, key:
                item = self.table(name).item(self.key(name, key))
                ends = b"never" if item.expires_ns is None else b"later"
                return [{b"version": text(item.version), b"flags": text(item.flags), b"ends": ends}[part]]
            case b"small", name, key, room:
                buffer = bytearray(int(room))
                length = self.table(name).get_into(self.key(name, key), buffer)
                return [some(None if length is None else buffer[:length])]
            case b"cas", name, key, expected, value:
                version = self.version(expected)
                return self.compared(self.table(name).compare_and_set(self.key(name, key), version, value))
            case b"cad", name, key, expected:
                version = self.version(expected)
                assert version is not None
                try:
                    found = self.table(name).delete(self.key(name, key), expected=version)
                except kelix.VersionMismatch as error:
                    return self.compared((False, error.found))
                return self.compared((True, None) if found else (False, None))
            case b"range", name, key, start, length:
                key = self.key(name, key)
                part = self.table(name).get_range(key, int(start), int(length))
                return [b"absent"] if part is None else [part, text(self.table(name).value_bytes(key))]
            case b"mget", name, *keys:
                found = self.table(name).multi_get([self.key(name, key) for key in keys])
                return [some(value) for value in found] or [b"nothing"]
            case b"mput", name, *pairs:
                split = (pair.split(b"=", 1) for pair in pairs)
                self.table(name).update((self.key(name, key), value) for key, value in split)
                return [b"ok"]
            case b"scan", name, *options:
                items = self.table(name).items(**self.range(name, tuple(options)))
                return self.pairs(name, items) or [b"nothing"]
            case b"pages", name, most:
                items, rows = iter(self.table(name).items()), []
                while page := list(islice(items, int(most))):
                    rows += self.pairs(name, page)
                return rows
            case b"count", name, *options:
                return [text(len(self.table(name).items(**self.range(name, tuple(options)))))]
            case b"columns", name, attribute:
                scan = self.table(name).scan(attributes=[attribute.decode()])
                return [some(value) for value in pyarrow.table(scan.arrow())[attribute.decode()].to_pylist()]
            case b"item", name, key, *parts:
                attributes: dict[str, bytes] = {}
                links: dict[str, list[Any]] = {}
                for part in parts:
                    if b"->" in part:
                        link, target = part.split(b"->", 1)
                        of, target_key = target.split(b"/", 1)
                        links.setdefault(link.decode(), []).append((self.table(of), self.key(of, target_key)))
                    else:
                        attribute, value = part.split(b"=", 1)
                        attributes[attribute.decode()] = value
                return [text(self.table(name).put(self.key(name, key), attributes=attributes, links=links))]
            case b"attribute", name, key, attribute:
                return [some(self.table(name).item(self.key(name, key)).attributes.get(attribute.decode()))]
            case b"links", name, key, link:
                links_there = self.table(name).item(self.key(name, key)).links.get(link.decode(), [])
                shown = [(one.table.encode(), one.key) for one in links_there]
                return [of + b"/" + self.shown(of, target) for of, target in shown] or [b"nothing"]
            case b"follow", name, key, link:
                found = self.table(name).item(self.key(name, key)).follow(link.decode())
                return [some(found and found.key)]
            case b"walk", name, key, links_named, depth:
                walk = self.table(name).walk(
                    self.key(name, key), links_named.decode().split(","), depth=int(depth)
                )
                return [visit.item.key for visit in walk]
            case b"visit", name, *keys:
                items_found = self.table(name).multi_item([self.key(name, key) for key in keys])
                return [some(item and item.key) for item in items_found]
            case b"build", dataset, *tables:
                kinds = (table.split(b":") for table in tables)
                self.build = store.build(
                    dataset.decode(), {name.decode(): kind_of(kind) for name, kind in kinds}
                )
                return [b"ok"]
            case b"bput", name, key, value:
                # The kinds of this script's builds are told by their tables' names.
                raw_key = int(key).to_bytes(8) if name == b"prices" else key
                self.build[name.decode()][raw_key] = value
                return [b"ok"]
            case (b"finish",):
                return [text(self.build.finish().items)]
            case (b"abandon",):
                self.build.abandon()
                return [b"ok"]
            case b"forget", dataset:
                return yes(store.drop_dataset(dataset.decode()))
            case b"view", dataset, name:
                self.views[name] = store.view(dataset.decode())
                return [b"ok"]
            case b"vget", view, name, key:
                return [some(self.views[view][name.decode()].get(key))]
            case b"close", view:
                del self.views[view]
                return [b"ok"]
            case b"submit", b"put", name, key, value, number:
                self.queue.put(self.table(name), self.key(name, key), value, int(number))
                return [b"ok"]
            case b"submit", b"get", name, key, number:
                self.queue.get(self.table(name), self.key(name, key), int(number))
                return [b"ok"]
            case b"submit", b"delete", name, key, number:
                self.queue.delete(self.table(name), self.key(name, key), int(number))
                return [b"ok"]
            case (b"poll",):
                ended = []
                for completion in self.poll_all():
                    match completion.result():
                        case bool() as deleted:
                            result = yes(deleted)[0]
                        case int():
                            result = b"written"
                        case found:
                            result = some(found)
                    ended.append(text(completion.number) + b"=" + result)
                return sorted(ended) or [b"nothing"]
        raise NoSuchOperation(operation.decode())

    def is_wanted(self, operation: bytes, got: list[bytes], wanted: list[bytes]) -> bool:
        """Versions of what was written are noted, and others compared."""
        writes = operation in (b"put", b"item") or wanted[0] == b"done"
        if len(got) != len(wanted):
            return False
        for at, word in enumerate(wanted):
            if word.startswith(b"$") and writes:
                self.versions[word] = got[at]
            elif got[at] != (self.versions.get(word) if word.startswith(b"$") else word):
                return False
        return True

    def check(self, line: str) -> str | None:
        """Runs a line, which says what is to come of it. Returns what is wrong."""
        call, wanted_words = line.split(" -> ")
        (operation, *arguments), wanted = words(call), words(wanted_words)
        try:
            got = self.run(operation, *arguments)
        except kelix.Error as error:
            got = [b"error", error.kind.encode()]
            if error.needed_bytes is not None:
                got.append(text(error.needed_bytes))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None if self.is_wanted(operation, got, wanted) else f"it brings {b' '.join(got)[:200]!r}"


class Script(unittest.TestCase):
    def test_all_operations(self) -> None:
        lines = SCRIPT.read_text().splitlines()
        lines = [line for line in lines if line and not line.startswith("#")]
        self.assertGreater(len(lines), 100)
        for fabric in ("shm", "tcp"):
            with self.subTest(fabric), Server("--shards", "2", "--listen", "0") as server:
                address = server.directory
                if fabric == "tcp":
                    address = kelix.connect(server.directory).statistics()["tcp"]
                store = kelix.connect(address)
                self.assertEqual(store.fabric, fabric)
                runner = Runner(store)
                wrong = [f"{line}\n    {why}" for line in lines if (why := runner.check(line))]
                self.assertEqual(wrong, [], "\n".join(wrong))
                runner.queue.close()

    def test_an_operation_that_is_not_there_is_a_failure(self) -> None:
        with Server() as server, kelix.connect(server.directory) as store:
            runner = Runner(store)
            self.assertEqual(runner.check("juggle people ada -> ok"), "NoSuchOperation: juggle")
            self.assertEqual(runner.check("tables -> people"), "it brings b''")


if __name__ == "__main__":
    unittest.main()
