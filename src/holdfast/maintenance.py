"""Maintenance of a whole store: back up, repair, change keys."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.errors import AlreadyExists, HoldfastError, InvalidArgument, NotEncrypted, StoreError, WrongKey
from holdfast.stores.abilities import BackingUp, Mending, Rewrapping
from holdfast.stores.contract import Store
from holdfast.stores.folder_sync import sync_folder
from holdfast.threads.context import Context
from holdfast.threads.verify import verify
from holdfast.types import BackupResult, Problem, RepairResult, VerifyProgress
from holdfast.urls import Durability, open_plain, path_of

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory


def backup(
    context: Context,
    target: str | os.PathLike[str],
    *,
    deep: bool,
    progress: Callable[[int, int], None] | None,
) -> BackupResult:
    """Copy a store to a new one of the same kind, and verify the copy."""
    store = _underlying(context.store)
    kind, path = path_of(target)
    if not isinstance(store, BackingUp):
        raise InvalidArgument(
            "only a store in a file or a folder can back itself up; nothing was written. For PostgreSQL use pg_dump. "
            "hf.repair(target) copies any store into a new one."
        )
    if kind != store.kind:
        raise InvalidArgument(
            f"a backup has the same kind as its store; nothing was written. Name a target like {_SHAPES[store.kind]}."
        )
    _require_elsewhere(store.path, path)
    _require_unused(kind, path)
    with _renamed_when_complete(target, kind, path) as place:
        size = store.backup(path_of(place)[1], progress)
    copy = open_plain(target, namespace=context.namespace, durability="normal")
    try:
        report = verify(_with_same_cipher(context.store, copy), context.namespace, deep=deep)
    finally:
        copy.close()
    return BackupResult(path, size, report)


def repair(
    context: Context, target: str | os.PathLike[str], *, progress: Callable[[VerifyProgress], None] | None
) -> RepairResult:
    """Copy what can be read of a store into a new one."""
    from holdfast.threads import repair as repairs  # noqa: PLC0415 - slow to import, and only needed here

    underlying = _underlying(context.store)
    kind, path = path_of(target)
    if isinstance(underlying, BackingUp) and kind in _SHAPES:
        _require_elsewhere(underlying.path, path)
    # SQLite writes everything to the disk when it is closed. A folder is written file by file.
    durability: Durability = "full" if kind == "dir" else "normal"
    with _renamed_when_complete(target, kind, path) as place:
        copy = open_plain(place, namespace=context.namespace, durability=durability)
        try:
            # Before the keys are copied: a plain store that holds a key could not be opened again.
            repairs.require_empty(copy)
            sealed = _with_same_cipher(context.store, copy)
            with _salvageable(context.store, near=None if kind not in _SHAPES else path) as (source, lost):
                done = repairs.repair(source, sealed, progress, values=_underlying(source).blob)
                done = replace(done, lost=(*lost, *done.lost))
        finally:
            copy.close()
    return done


def rekey(store: Store, progress: Callable[[int], None] | None) -> int:
    """Wrap every data key with the cipher's current key."""
    if not isinstance(store, Rewrapping):
        raise NotEncrypted("the store is not encrypted, so it has no keys to change; nothing was changed")
    return store.rewrap(progress)


_SHAPES = {"sqlite": "a path, or sqlite:///path", "dir": "dir:path"}


def _underlying(store: Store) -> Store:
    """The store without its cipher."""
    return store.underlying if isinstance(store, Rewrapping) else store


def _with_same_cipher(store: Store, other: Store) -> Store:
    """The other store, with the cipher of this one if it has one."""
    if isinstance(store, Rewrapping):
        return store.over(other)
    if other.keys(limit=1):
        raise WrongKey("the other store is encrypted and this one is not; nothing was written. Name a new store.")
    return other


def _require_elsewhere(path: str, target: str) -> None:
    """Refuse a target that is the store itself or lies in its folder."""
    here, there = os.path.realpath(path), os.path.realpath(target)
    if there == here:
        raise AlreadyExists(f"{target} is the store itself; nothing was written. Name a new store.")
    if there.startswith(os.path.join(here, "")):
        raise InvalidArgument(f"{target} is in the folder of the store; nothing was written. Name another folder.")


def _require_unused(kind: str, path: str) -> None:
    # SQLite takes files of another database under these names for parts of this one.
    for there in (path, f"{path}-wal", f"{path}-journal") if kind == "sqlite" else (path,):
        if os.path.lexists(there):
            raise AlreadyExists(f"{there} already exists; nothing was written. Name a new store.")


@contextmanager
def _renamed_when_complete(url: str | os.PathLike[str], kind: str, path: str) -> Generator[str | os.PathLike[str]]:
    """Yield a temporary address for a new store; rename the store to its own name when the block ends.

    The caller closes the store inside the block. An existing store, and one that is neither a file nor a folder,
    keeps its address. `AlreadyExists` if the name is taken when the block ends.
    """
    if kind not in ("sqlite", "dir") or os.path.lexists(path):
        yield url
        return
    path = os.path.realpath(path)
    _require_unused(kind, path)
    part = f"{path}.{os.urandom(6).hex()}.part"
    try:
        yield f"dir:{part}" if kind == "dir" else part
        _require_unused(kind, path)
        # SQLite does not report that it could not move the WAL into the file, because the commits are durable there.
        if os.path.exists(f"{part}-wal") and os.path.getsize(f"{part}-wal"):
            raise StoreError(
                f"{path}: the new store could not be written completely; nothing was left at the path. Check that the "
                "disk has space, then try again."
            )
        try:
            os.rename(part, path)
            sync_folder(os.path.dirname(path))
        except OSError as error:
            raise StoreError(
                f"{path}: the new store cannot be renamed to this path; the old store was not changed. Name another "
                "target."
            ) from error
    except HoldfastError as error:
        _name_instead(error, part, path)
        raise
    finally:
        # SQLite keeps more files next to its database while it is open.
        for left in glob.glob(f"{glob.escape(part)}*"):
            with suppress(OSError):
                shutil.rmtree(left) if os.path.isdir(left) else os.unlink(left)


@contextmanager
def untouched(url: str | os.PathLike[str], *, near: str | os.PathLike[str]) -> Generator[str]:
    """Yield an address at which a store can be opened without changing it: for a file, that of a temporary copy.

    Opening a SQLite file moves the contents of its WAL into it. The copy is made in the folder of `near`.
    """
    kind, path = path_of(url)
    if kind != "sqlite":
        yield os.fspath(url)
        return
    to_kind, to = path_of(near)
    if to_kind in _SHAPES:
        _require_elsewhere(path, to)
    with _scratch(to if to_kind in _SHAPES else None) as folder:
        from holdfast.stores.sqlite.backup import copy_raw  # noqa: PLC0415

        copy = copy_raw(path, folder)
        try:
            yield copy
        except HoldfastError as error:
            _name_instead(error, copy, path)
            raise


def _name_instead(error: HoldfastError, copy: str, path: str) -> None:
    """Make an error name the store that a caller knows, not a copy that is deleted."""
    error.args = tuple(each.replace(copy, path) if isinstance(each, str) else each for each in error.args)


@contextmanager
def _salvageable(store: Store, near: str | None) -> Generator[tuple[Store, list[Problem]]]:
    """Yield the store to repair from, a mended copy if the store can make one, and what that copy lacks."""
    underlying = _underlying(store)
    if not isinstance(underlying, Mending):
        yield store, []
        return
    with _scratch(near) as folder:
        mended, lacking = underlying.mended(folder)
        try:
            yield _with_same_cipher(store, mended), lacking
        finally:
            mended.close()


def _scratch(near: str | None) -> TemporaryDirectory[str]:
    """A temporary folder on the same disk as `near`."""
    folder = None if near is None else os.path.dirname(os.path.realpath(near))
    if folder is not None and not os.path.isdir(folder):
        raise StoreError(
            f"{near}: there is no folder {folder}; nothing was copied. Create the folder, or name another target."
        )
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - slow to import, and only for repairs

    try:
        return TemporaryDirectory(prefix=".holdfast-", dir=folder)
    except OSError as error:
        where = "the folder for temporary files" if folder is None else f"the folder {folder}"
        advice = "Set TMPDIR to another folder" if folder is None else "Name a target in another folder"
        raise StoreError(f"{where} cannot be written; nothing was copied. {advice}.") from error
