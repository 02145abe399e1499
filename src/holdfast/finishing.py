"""A new store that gets its name when it is whole: what a copying that was cut off has left is never taken for it."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress

from holdfast.errors import AlreadyExists, StoreError


@contextmanager
def placed(url: str | os.PathLike[str], kind: str, path: str) -> Generator[str | os.PathLike[str]]:
    """The address to write a new store under, and to have closed at the end: then it gets the name it is meant to have.

    That of a store that is there already, or in no file or folder of its own, is the address itself. `AlreadyExists` if
    somebody else has taken the name meanwhile.
    """
    if kind not in ("sqlite", "dir") or os.path.lexists(path):
        yield url
        return
    path = os.path.realpath(path)
    part = f"{path}.{os.urandom(6).hex()}.part"
    try:
        yield f"dir:{part}" if kind == "dir" else part
        if os.path.lexists(path):
            raise AlreadyExists(f"{path}: there is something by now; nothing was put there. Name a new store")
        try:
            os.rename(part, path)
            _sync_folder(os.path.dirname(path))
        except OSError as error:
            raise StoreError(f"{path}: the new store cannot be put there") from error
    finally:
        # Also what lies beside a file while it is open.
        for left in glob.glob(f"{glob.escape(part)}*"):
            with suppress(OSError):
                shutil.rmtree(left) if os.path.isdir(left) else os.unlink(left)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
