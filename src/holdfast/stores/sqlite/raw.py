"""Copying a store's file and WAL byte for byte, without SQLite opening them."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import Final

from holdfast.errors import NotFound, StoreError
from holdfast.stores.gate import Gate

_TIMEOUT: Final = 10.0


def copy_raw(path: str, folder: str) -> str:
    """Copy a store into a folder; the path of the copy. Nobody writes meanwhile, so the WAL fits the file."""
    path = os.path.realpath(path)
    copy = os.path.join(folder, os.path.basename(path))
    gate = Gate(path, _TIMEOUT) if os.path.exists(f"{path}-gate") else None
    try:
        if gate is not None:  # else nobody has ever written to it here: it was copied by itself
            gate.enter()
        shutil.copyfile(path, copy)
        with suppress(FileNotFoundError):
            shutil.copyfile(f"{path}-wal", f"{copy}-wal")
    except FileNotFoundError as error:
        raise NotFound(f"there is no store at {path}") from error
    except OSError as error:
        raise StoreError(f"{path}: the store cannot be copied") from error
    finally:
        if gate is not None:
            gate.close()
    return copy
