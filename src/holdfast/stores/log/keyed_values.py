"""Values under keys of a device: blobs, the wrapped keys of an encrypted namespace, and the claims of acts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final

import msgspec

from holdfast.errors import Damaged
from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.stores import rules
from holdfast.stores.contract import Blob, KeyRow
from holdfast.stores.contract_runs import ActRow
from holdfast.stores.log.device import ACTS, BLOBS, KEYS, Device, Version
from holdfast.stores.log.namespace import Namespace
from holdfast.stores.rules import MAX_PIECE

_REMEMBERED: Final = 4096  # blobs known to be undamaged; others are checked again
_HEX: Final = frozenset("0123456789abcdef")
_NAME: Final = re.compile(rf"[0-9a-f]{{{2 * rules.ACT_BYTES}}}")


class Blobs:
    """The blobs of one namespace."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._sound: dict[str, Version | None] = {}

    def read(self, digest: bytes) -> list[bytes] | None:
        """The verified pieces of a blob; None if it is missing. `Damaged` if it is wrong."""
        key = f"{BLOBS}/{digest.hex()}"
        data = self._device.get(key)
        if data is None:
            return None
        if hashlib.sha256(data).digest() != digest:
            raise Damaged(f"blob {digest.hex()} does not match its digest")
        return [data[at : at + MAX_PIECE] for at in range(0, len(data), MAX_PIECE)]

    def store(self, blob: Blob) -> None:
        """Write a blob, unless it already exists undamaged."""
        key = f"{BLOBS}/{blob.digest.hex()}"
        if not self._is_sound(key, blob.digest, sum(map(len, blob.pieces))):
            self._device.put(key, blob.pieces)
            self._remember(key, self._device.seen(key))

    def _is_sound(self, key: str, digest: bytes, size: int) -> bool:
        """Whether an undamaged blob exists. One that changed since the last check is checked again."""
        seen = self._device.seen(key)
        if seen is None or seen.size != size:
            return False
        if seen == self._sound.get(key):
            return True
        data = self._device.get(key)
        is_sound = data is not None and hashlib.sha256(data).digest() == digest
        if is_sound:
            self._remember(key, seen)
        return is_sound

    def _remember(self, key: str, seen: Version | None) -> None:
        if len(self._sound) >= _REMEMBERED:
            self._sound.clear()
        self._sound[key] = seen

    def all(self) -> list[str]:
        """The digests of all blobs, in hex."""
        names = (key.partition("/")[2] for key in self._device.keys(BLOBS))
        return [name for name in names if len(name) == 64 and _HEX.issuperset(name)]

    def remove(self, digests: Iterable[str]) -> None:
        self._sound.clear()
        self._device.remove([f"{BLOBS}/{digest}" for digest in digests])


class _KeyFile(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    name: str
    wrapped: str
    thread: int = 0  # the number of the thread that it is the key of


class WrappedKeys:
    """The wrapped keys of one namespace, each a small blob."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def all(self, id: bytes | None, after: bytes, limit: int) -> list[KeyRow]:
        wanted = [each for each in self._ids() if each > after.hex()][:limit] if id is None else [id.hex()]
        return [row for each in wanted if (row := self._read(each)[0]) is not None]

    def put(self, id: bytes, expect: KeyRow | None, row: KeyRow | None) -> KeyRow | None:
        there, thread = self._read(id.hex())
        if there != expect:
            return there
        if row is None:
            self.remove([id.hex()])
        else:
            self._write(row, thread)
        return row

    def put_new(self, row: KeyRow | None, thread: int) -> str:
        """Store the key of a thread that is about to be created. Return its id in hex; empty if there is no key."""
        if row is None:
            return ""
        self._write(row, thread)
        return row.id.hex()

    def remove(self, ids: Iterable[str]) -> None:
        self._device.remove([_key_of(id) for id in ids if id])

    def remove_unused(self, threads: Mapping[int, str]) -> None:
        """Remove the keys of threads that do not exist: their creation or their removal was interrupted.

        `threads` has the ids of the keys of those that exist.
        """
        owners = {id: self._read(id)[1] for id in sorted({*self._ids()}.difference(threads.values()))}
        unused = [_key_of(id) for id, thread in owners.items() if thread and thread not in threads]
        self._device.remove(self._device.settled(unused))

    def _ids(self) -> list[str]:
        stems = [key.partition("/")[2].removesuffix(".json") for key in self._device.keys(KEYS)]
        return sorted(stem for stem in stems if len(stem) % 2 == 0 and _HEX.issuperset(stem))

    def _write(self, row: KeyRow, thread: int) -> None:
        made = _KeyFile(row.id.hex(), row.name, row.wrapped.hex(), thread)
        self._device.put(_key_of(made.id), [ln.line_of(made)])

    def _read(self, id: str) -> tuple[KeyRow | None, int]:
        """A key, and the number of its thread, or 0."""
        stored = self._device.get(_key_of(id))
        if stored is None:
            return None, 0
        read = ln.record_in(stored, _KeyFile)
        with suppress(ValueError):  # the key is not hex
            if read is not None and read.id == id:
                return KeyRow(bytes.fromhex(id), read.name, bytes.fromhex(read.wrapped)), read.thread
        return KeyRow(bytes.fromhex(id), "", b""), 0


def _key_of(id: str) -> str:
    return f"{KEYS}/{id}.json"


class _Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    thread: ln.Whole
    number: ln.Whole
    before: tuple[ln.Whole, ln.Whole] | None = None


class ActFiles:
    """The claims of a namespace. A claim counts if its entry has the act, or if its thread was dropped.

    A crash between the two writes leaves a file for an entry that was not written. Then the claim that it replaces
    counts, which is in the file too. If there is none, the act is free.
    """

    def __init__(self, space: Namespace) -> None:
        self._space = space

    def find(self, key: bytes, gone: set[int] | None = None) -> ActRow | None:
        """The claim of an act; None if it is free. `Damaged` if the file cannot be read.

        `gone` has the threads that are known to be dropped: each is looked for among all threads only once.
        """
        return self._counting(self.stored(key), set() if gone is None else gone)

    def decided(self, key: bytes, thread: int) -> ActRow | None:
        """`find`, for a writer to a thread: no other writer is about to make another claim count. Only in a turn."""
        rows = self.stored(key)
        if rows:
            self._space.decide(rows[0].thread, thread, lambda other: rows[0].number <= other.last_entry)
        return self._counting(rows, set())

    def page(self, prefix: bytes, after: bytes | None, limit: int) -> list[ActRow]:
        gone: set[int] = set()
        rows = (self.find(key, gone) for key in self.listed(prefix, after))
        return list(islice((row for row in rows if row is not None), max(limit, 0)))

    def listed(self, prefix: bytes = b"", after: bytes | None = None) -> Iterator[bytes]:
        """The keys of the files, in the order of the device."""
        for each in self._space.device.keys(ACTS, "" if after is None else _name(after)):
            name = each.partition("/")[2]
            if name.startswith(prefix.hex()) and _NAME.fullmatch(name):
                yield bytes.fromhex(name)

    def put(self, key: bytes, row: ActRow | None, before: ActRow | None = None) -> None:
        """Replace the claim of an act, durably. Only in a turn. `before` counts until the entry of `row` is written."""
        device = self._space.device
        if row is None:
            device.remove([_name(key)])
        else:
            replaced = None if before is None else (before.thread, before.number)
            device.put(_name(key), [ln.line_of(_Claim(row.thread, row.number, replaced))])

    def stored(self, key: bytes) -> list[ActRow]:
        """The claim in the file of an act, and the one before it. `Damaged` if the file cannot be read."""
        data = self._space.device.get(_name(key)) or b""
        if not data.strip(b"\0"):
            return []  # a power cut leaves nothing, or zeros, of a file that was not synced
        found = ln.record_in(data, _Claim)
        if found is None:
            raise Damaged(
                f"{_name(key)}: the claim of an act is damaged; nothing was changed. Find out whether the act has "
                "happened, then remove the file."
            )
        claim = ActRow(key, found.thread, found.number)
        return [claim] if found.before is None else [claim, ActRow(key, *found.before)]

    def _counting(self, rows: list[ActRow], gone: set[int]) -> ActRow | None:
        return next((row for row in rows if self._counts(row, gone)), None)

    def _counts(self, row: ActRow, gone: set[int]) -> bool:
        log = None if row.thread in gone else self._space.numbered(row.thread)
        if log is None or log.thread.is_gone:
            gone.add(row.thread)
            return True
        if row.number > log.thread.last_entry:
            return False
        place = log.thread.entries.get(row.number)
        return place is None or jsonl.read_entry(log.line(place)).act == row.key  # a lost entry may have had the act


def _name(key: bytes) -> str:
    return f"{ACTS}/{key.hex()}"
