"""The folder a store is: recognised, or made."""

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
    """What `holdfast.json` says."""

    holdfast: str
    format: int


def open_root(path: str, *, sync: bool) -> None:
    """Make sure that the folder is a store, making one of a folder that is empty or not there.

    `NotAStore` or `NewerFormat` if it is something else, which is left as it was; `ReadOnly` if it cannot be made.
    """
    try:
        with open(os.path.join(path, MARKER), "rb") as file:
            _recognise(path, file.read())
        return
    except NotADirectoryError as error:
        raise NotAStore(f"{path}: a file, and not the folder of a store; it was left as it was") from error
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
            f"{path}: its {MARKER} is not that of a store; it was left as it was. If it was damaged, put that of any "
            "other directory store in its place: they are the same"
        ) from error
    if marker.holdfast != "directory" or marker.format < 1:
        raise NotAStore(f"{path}: its {MARKER} is not that of a directory store; it was left as it was")
    if marker.format > FORMAT:
        raise NewerFormat(
            f"{path}: written by a newer Holdfast (format {marker.format}, this one reads up to {FORMAT}); "
            "it was left as it was. Upgrade to read it"
        )


def _make(path: str, *, sync: bool) -> None:
    try:
        files.make_folder(path, sync=sync)
        # What a creation that was cut off has left is ours.
        if any(not (name.startswith(f"{MARKER}.") and name.endswith("new")) for name in os.listdir(path)):
            if os.path.exists(os.path.join(path, MARKER)):
                return  # somebody else was faster
            raise NotAStore(f"{path}: a folder that is not empty and not a Holdfast store; it was left as it was")
        marker = msgspec.json.encode(Marker("directory", FORMAT)) + b"\n"
        whole = os.path.join(path, MARKER)
        files.replace_file(whole, [marker], sync=sync, is_alone=False)
    except files.SyncFailed as error:
        raise files.unknown(path) from error
    except (FileExistsError, NotADirectoryError) as error:
        raise NotAStore(f"{path}: a file is where a folder should be; it was left as it was") from error
    except OSError as error:
        translated = files.translate(error, path)
        if isinstance(translated, ReadOnly):
            raise ReadOnly(f"{path}: there is no such store, and this process may not make one") from error
        raise translated from error
