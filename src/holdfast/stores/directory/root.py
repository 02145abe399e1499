"""Recognise or create the folder of a store."""

from __future__ import annotations

import os
from typing import Final

import msgspec

from holdfast.errors import NewerFormat, NotAStore, ReadOnly
from holdfast.stores.directory import files
from holdfast.types import UNREADABLE

FORMAT: Final = 1
MARKER: Final = "holdfast.json"


class Marker(msgspec.Struct, frozen=True):
    """The content of `holdfast.json`."""

    holdfast: str
    format: int


def open_root(path: str, *, sync: bool) -> None:
    """Make sure that the folder is a store; create one in a folder that is empty or missing.

    `NotAStore` or `NewerFormat`, leaving the folder unchanged, if it is something else. `ReadOnly` if it cannot be
    created.
    """
    try:
        with open(os.path.join(path, MARKER), "rb") as file:
            _recognise(path, file.read())
        return
    except NotADirectoryError as error:
        raise NotAStore(f"{path}: a file, not the folder of a store; it was left unchanged") from error
    except FileNotFoundError:
        pass
    except OSError as error:
        raise files.translate(error, path) from error
    _make(path, sync=sync)


def _recognise(path: str, data: bytes) -> None:
    try:
        marker = msgspec.json.decode(data, type=Marker)
    except UNREADABLE as error:
        raise NotAStore(
            f"{path}: the file {MARKER} is not that of a store; it was left unchanged. If it was damaged, replace it "
            "by that of any other directory store: they are all the same."
        ) from error
    if marker.holdfast != "directory" or marker.format < 1:
        raise NotAStore(f"{path}: the file {MARKER} is not that of a directory store; it was left unchanged")
    if marker.format > FORMAT:
        raise NewerFormat(
            f"{path}: written by a newer Holdfast (format {marker.format}, this one reads up to {FORMAT}); "
            "it was left unchanged. Upgrade Holdfast."
        )


def _make(path: str, *, sync: bool) -> None:
    try:
        files.make_folder(path, sync=sync)
        # Files that an interrupted creation left are allowed.
        if any(not (name.startswith(f"{MARKER}.") and name.endswith("new")) for name in os.listdir(path)):
            if os.path.exists(os.path.join(path, MARKER)):
                return  # another process was faster
            raise NotAStore(f"{path}: the folder is not empty and not a Holdfast store; it was left unchanged")
        marker = msgspec.json.encode(Marker("directory", FORMAT)) + b"\n"
        whole = os.path.join(path, MARKER)
        files.replace_file(whole, [marker], sync=sync, is_alone=False)
    except files.SyncFailed as error:
        raise files.unknown(path) from error
    except (FileExistsError, NotADirectoryError) as error:
        raise NotAStore(f"{path}: a file is in the place of a folder; it was left unchanged") from error
    except OSError as error:
        translated = files.translate(error, path)
        if isinstance(translated, ReadOnly):
            raise ReadOnly(f"{path}: the store does not exist, and this process may not create it") from error
        raise translated from error
