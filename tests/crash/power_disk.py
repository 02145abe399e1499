"""A disk that loses its power: what is there afterwards of what was written, by the little that POSIX promises.

Bytes are there once their file was synced, a name once its folder was. Everything else may be there or not: each sector
of 512 bytes by itself, as it was after any of the writes to it; the length of a file apart from its bytes; names apart
from both. Only a rename is whole: never half of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Literal

import msgspec

SECTOR = 512
Image = dict[str, bytes | None]
"""What is on a disk: files by their paths, and folders, which are None."""

Model = Literal["kept", "dropped", "hollow", "zeros", "nameless", "torn"]
MODELS: tuple[Model, ...] = ("dropped", "hollow", "zeros", "nameless", "torn")
"""What becomes of what was not synced: none of it is there; names without bytes; names and lengths, with zeros for
bytes; bytes without names; anything."""


class Opened(msgspec.Struct, frozen=True, tag=True):
    """A file was opened, and made if it was not there."""

    path: str
    is_cut: bool = False


class Written(msgspec.Struct, frozen=True, tag=True):
    """Bytes were written; without an offset, behind the last one."""

    path: str
    data: bytes
    offset: int | None = None


class Resized(msgspec.Struct, frozen=True, tag=True):
    path: str
    size: int


class Synced(msgspec.Struct, frozen=True, tag=True):
    """A file or a folder was synced."""

    path: str


class Renamed(msgspec.Struct, frozen=True, tag=True):
    old: str
    new: str


class Removed(msgspec.Struct, frozen=True, tag=True):
    """A file or a folder was removed."""

    path: str


class FolderMade(msgspec.Struct, frozen=True, tag=True):
    path: str


class Said(msgspec.Struct, frozen=True, tag=True):
    """The program told the world something that it cannot take back."""

    text: str


Event = Opened | Written | Resized | Synced | Renamed | Removed | FolderMade | Said


class File:
    """Bytes: those that are safe, those that a program sees, and how they differ."""

    def __init__(self, data: bytes = b"") -> None:
        self.safe = data
        self.seen = bytearray(data)
        self._changes: list[tuple[int, bytes] | int] = []

    def write(self, data: bytes, offset: int | None) -> None:
        at = len(self.seen) if offset is None else offset
        self._changes.append((at, data))
        _put(self.seen, at, data)

    def resize(self, size: int) -> None:
        self._changes.append(size)
        _resize(self.seen, size)

    def sync(self) -> None:
        self.safe = bytes(self.seen)
        self._changes.clear()

    def after_cut(self, model: Model, random: Random) -> bytes:
        if not self._changes or model in ("dropped", "hollow"):
            return self.safe
        if model in ("kept", "nameless"):
            return bytes(self.seen)
        if model == "zeros":
            return self.safe[: len(self.seen)].ljust(len(self.seen), b"\0")
        return self._torn(random)

    def _torn(self, random: Random) -> bytes:
        data = bytearray(self.safe)
        sizes = [len(data)]
        sectors: dict[int, list[bytes]] = {}
        for change in self._changes:
            before = len(data)
            if isinstance(change, int):
                _resize(data, change)
                first, last = before, change
            else:
                _put(data, *change)
                first, last = min(before, change[0]), change[0] + len(change[1])
            sizes.append(len(data))
            if first > last:
                continue  # a file that was made shorter is so, or is not: no sector changes by that
            for sector in range(first // SECTOR, -(-last // SECTOR)):
                sectors.setdefault(sector, []).append(bytes(data[sector * SECTOR : (sector + 1) * SECTOR]))
        size = random.choice((sizes[-1], random.choice(sizes)))
        chance = random.choice((0.1, 0.5, 0.9))
        torn = bytearray(self.safe[:size].ljust(size, b"\0"))
        for sector, versions in sectors.items():
            if random.random() < chance:
                _put(torn, sector * SECTOR, random.choice((versions[-1], random.choice(versions))).ljust(SECTOR, b"\0"))
        return bytes(torn[:size])


class Folder:
    """Names of files and folders: those that are safe, and those that a program sees."""

    def __init__(self) -> None:
        self.safe: dict[str, File | Folder] = {}
        self.seen: dict[str, File | Folder] = {}


class _Naming:
    """Names that changed at once, and the folders that have to be synced before all of that is safe."""

    def __init__(self, *changes: tuple[Folder, str, File | Folder | None], source: tuple[Folder, str] | None) -> None:
        self.changes = list(changes)
        self.unsafe = {folder for folder, _, _ in changes}
        self.source = source  # what is renamed has to be there


class _View:
    """The names of every folder, as they may be after a power cut."""

    def __init__(self, *, is_safe: bool) -> None:
        self._is_safe = is_safe
        self._names: dict[Folder, dict[str, File | Folder]] = {}

    def of(self, folder: Folder) -> dict[str, File | Folder]:
        if folder not in self._names:
            self._names[folder] = dict(folder.safe if self._is_safe else folder.seen)
        return self._names[folder]

    def can(self, naming: _Naming) -> bool:
        if naming.source is None:
            return True
        folder, name = naming.source
        moved = next((node for _, _, node in naming.changes if node is not None), None)
        return moved is not None and self.of(folder).get(name) is moved

    def do(self, naming: _Naming) -> None:
        for folder, name, node in naming.changes:
            _set(self.of(folder), name, node)


class Disk:
    """What a disk holds, seen and safe."""

    def __init__(self, image: Image | None = None) -> None:
        """The disk holds the image, safely."""
        self._root = Folder()
        self._namings: list[_Naming] = []
        for path, data in sorted((image or {}).items()):
            folder, name = self._place(path)
            folder.seen[name] = folder.safe[name] = Folder() if data is None else File(data)

    def do(self, event: Event) -> None:
        match event:
            case Opened(path, is_cut):
                folder, name = self._place(path)
                if name not in folder.seen:
                    self._name((folder, name, File()))
                elif is_cut:
                    self._file(path).resize(0)
            case Written(path, data, offset):
                self._file(path).write(data, offset)
            case Resized(path, size):
                self._file(path).resize(size)
            case Synced(path):
                node = self._node(path)
                if isinstance(node, File):
                    node.sync()
                else:
                    self._sync_names(node)
            case Renamed(old, new):
                source, was = self._place(old)
                target, name = self._place(new)
                self._name((target, name, source.seen[was]), (source, was, None), source=(source, was))
            case Removed(path):
                self._name((*self._place(path), None))
            case FolderMade(path):
                self._name((*self._place(path), Folder()))
            case Said():
                pass

    def seen(self) -> Image:
        """What a program sees."""
        return self.after_cut("kept", Random(0))

    def after_cut(self, model: Model, random: Random) -> Image:
        """What is there when the power is back."""
        view = _View(is_safe=model not in ("kept", "hollow", "zeros"))
        if model == "torn":
            chance = random.choice((0.1, 0.5, 0.9))
            for naming in self._namings:
                if random.random() < chance and view.can(naming):
                    view.do(naming)
        return dict(self._listed(self._root, "", view, model, random))

    def _listed(
        self, folder: Folder, path: str, view: _View, model: Model, random: Random
    ) -> Iterator[tuple[str, bytes | None]]:
        for name, node in sorted(view.of(folder).items()):
            there = os.path.join(path, name)
            if isinstance(node, File):
                yield there, node.after_cut(model, random)
            else:
                yield there, None
                yield from self._listed(node, there, view, model, random)

    def _name(
        self, *changes: tuple[Folder, str, File | Folder | None], source: tuple[Folder, str] | None = None
    ) -> None:
        naming = _Naming(*changes, source=source)
        self._namings.append(naming)
        for folder, name, node in naming.changes:
            _set(folder.seen, name, node)

    def _sync_names(self, folder: Folder) -> None:
        left: list[_Naming] = []
        for naming in self._namings:
            naming.unsafe.discard(folder)
            if naming.unsafe:
                left.append(naming)
                continue
            for place, name, node in naming.changes:
                _set(place.safe, name, node)
                for earlier in left:
                    earlier.changes = [change for change in earlier.changes if change[:2] != (place, name)]
        self._namings = left

    def _place(self, path: str) -> tuple[Folder, str]:
        above, _, name = path.rpartition("/")
        folder = self._root
        for part in above.split("/") if above else ():
            node = folder.seen[part]
            assert isinstance(node, Folder), path
            folder = node
        return folder, name

    def _node(self, path: str) -> File | Folder:
        if not path:
            return self._root
        folder, name = self._place(path)
        return folder.seen[name]

    def _file(self, path: str) -> File:
        node = self._node(path)
        assert isinstance(node, File), path
        return node


def read_image(folder: Path) -> Image:
    """What is in a folder."""
    found = ((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*"))
    return {name: None if path.is_dir() else path.read_bytes() for name, path in found}


def write_image(folder: Path, image: Image) -> None:
    """Put files and folders into a folder."""
    for name, data in sorted(image.items()):
        if data is None:
            (folder / name).mkdir(0o700)
        else:
            (folder / name).write_bytes(data)
            (folder / name).chmod(0o600)


def _set(names: dict[str, File | Folder], name: str, node: File | Folder | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _put(data: bytearray, offset: int, piece: bytes) -> None:
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(piece)] = piece


def _resize(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))
