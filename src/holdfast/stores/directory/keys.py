"""The wrapped keys of a namespace: a small file each, named by the id of the key."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import msgspec

from holdfast.errors import Damaged
from holdfast.stores.contract import KeyRow, key_changed
from holdfast.stores.directory import files
from holdfast.types import UNREADABLE

_SUFFIX: Final = ".json"


class _KeyFile(msgspec.Struct, frozen=True):
    id: str
    name: str
    wrapped: str


class Keys:
    """The keys in one namespace's folder. Writers hold the gate."""

    def __init__(self, space: str) -> None:
        self._folder = os.path.join(space, "keys")
        self._entered: set[str] = set()

    def key(self, id: bytes) -> KeyRow | None:
        path = self._path(id)
        try:
            with open(path, "rb") as file:
                read = msgspec.json.decode(file.read(), type=_KeyFile)
            row = KeyRow(bytes.fromhex(read.id), read.name, bytes.fromhex(read.wrapped))
        except FileNotFoundError:
            return None
        except (ValueError, *UNREADABLE) as error:
            raise Damaged(f"{path}: the record of a data key cannot be read") from error
        if row.id != id:
            raise Damaged(f"{path}: the record belongs to another data key")
        return row

    def keys(self, after: bytes, limit: int) -> list[KeyRow]:
        found: list[KeyRow] = []
        for id in self._ids():
            if id > after and len(found) < limit:
                row = self._listed(id)
                if row is not None:
                    found.append(row)
        return found

    def _listed(self, id: bytes) -> KeyRow | None:
        """A key for a listing. An unreadable key must not hide the others."""
        try:
            return self.key(id)
        except Damaged:
            return KeyRow(id, "", b"")

    def put(self, row: KeyRow, expect: KeyRow | None, *, sync: bool) -> KeyRow:
        there = self.key(row.id)
        if expect is None and there is not None:
            return there
        if there != expect:
            raise key_changed()
        files.enter(self._folder, self._entered, sync=sync)
        made = msgspec.json.encode(_KeyFile(row.id.hex(), row.name, row.wrapped.hex())) + b"\n"
        files.replace_file(self._path(row.id), [made], sync=sync)
        return row

    def remove(self, id: bytes, expect: KeyRow | None, *, sync: bool) -> None:
        if expect is not None and self._listed(id) != expect:
            return
        with suppress(FileNotFoundError), files.renaming_in(self._folder, sync=sync):
            os.unlink(self._path(id))

    def _path(self, id: bytes) -> str:
        return os.path.join(self._folder, id.hex() + _SUFFIX)

    def _ids(self) -> list[bytes]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
        return sorted(bytes.fromhex(stem) for stem in stems if len(stem) % 2 == 0 and _HEX.issuperset(stem))


_HEX: Final = frozenset("0123456789abcdef")
