"""What is done with a store as a whole: verify, mark, back up, repair. The handle has these verbs."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from holdfast.errors import AlreadyExists, InvalidArgument, NotEncrypted, StoreError, WrongKey
from holdfast.stores.abilities import BackingUp, Mending, Rewrapping
from holdfast.stores.contract import Problem, Store
from holdfast.stores.files import sync_folder
from holdfast.threads import verify
from holdfast.threads.context import Session
from holdfast.threads.verify import Looked, Repaired, Report
from holdfast.urls import Durability, open_plain, path_of

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory


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
            sync_folder(os.path.dirname(path))
        except OSError as error:
            raise StoreError(f"{path}: the new store cannot be put there") from error
    finally:
        # Also what lies beside a file while it is open.
        for left in glob.glob(f"{glob.escape(part)}*"):
            with suppress(OSError):
                shutil.rmtree(left) if os.path.isdir(left) else os.unlink(left)


class BackedUp(msgspec.Struct, frozen=True):
    """A copy that `hf.backup()` made: where, how many bytes, and what `verify()` says about it."""

    target: str
    bytes: int
    report: Report


class Keeping:
    """The verbs of a handle that look at all of a store."""

    _session: Session

    def verify(
        self, *, deep: bool = True, mark: str | None = None, progress: Callable[[Looked], None] | None = None
    ) -> Report:
        """Check everything stored: structures, digests, chains, journals, and that all that is named is there.

        Not `deep`, only structures, checksums of records and journals are looked at, and no cells. With a `mark` that
        `hf.mark()` gave, also that no thread went back behind it or is gone; InvalidArgument if it is not one of this
        store. `progress` is told how far it is.
        """
        self._session.check_open()
        store, namespace = self._session.store, self._session.namespace
        return verify.verify(store, namespace, deep=deep, mark=mark, progress=progress)

    def mark(self) -> str:
        """Where every thread stands, as a text to be kept outside of the store: `verify(mark=…)` compares with it.

        With a cipher it is signed by a key. Damaged if a thread cannot be read.
        """
        from holdfast.threads.fingerprint import mark  # noqa: PLC0415 - as below

        self._session.check_open()
        return mark(self._session.store, self._session.namespace)

    def backup(
        self,
        target: str | os.PathLike[str],
        *,
        verify: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> BackedUp:
        """Copy the store, as it is at one moment, to a store of the same kind while others go on writing.

        All namespaces are copied, and what is encrypted stays so. The copy is verified, as far as this handle's
        namespace goes. `progress` is told how much is copied, and of how much. AlreadyExists if there is something
        under the target, InvalidArgument if that lies in the store's own folder; then, and after any other error of
        copying, there is no copy.
        """
        self._session.check_open()
        store = _plain(self._session.store)
        kind, path = path_of(target)
        if not isinstance(store, BackingUp):
            raise InvalidArgument(
                "only stores in a file or a folder copy themselves: for PostgreSQL use pg_dump, and hf.repair(target) "
                "copies what is in any store into a new one"
            )
        if kind != store.kind:
            raise InvalidArgument(f"a backup is of the same kind as its store: {_SHAPES[store.kind]}")
        _require_elsewhere(store.path, path)
        size = store.backup(path, progress)
        return BackedUp(path, size, self._looked_at(target, deep=verify))

    def repair(self, target: str | os.PathLike[str], *, progress: Callable[[Looked], None] | None = None) -> Repaired:
        """Copy what can be read into a new store of any kind, this namespace of it; the store itself is only read.

        Ids, order, labels, metadata, times, journals and runs stay. What is damaged is left out, checkpoints as
        tombstones, and said. AlreadyExists if the target holds threads; WrongKey if it is encrypted already, and so
        has data keys of its own. Do it while nobody writes to the store.
        """
        # Who does not repair does not wait for the imports.
        from holdfast.threads.repair import repair, require_empty  # noqa: PLC0415

        self._session.check_open()
        plain = _plain(self._session.store)
        kind, path = path_of(target)
        if isinstance(plain, BackingUp) and kind in _SHAPES:
            _require_elsewhere(plain.path, path)
        # SQLite writes all to the disk when it is closed; a folder is written as it goes.
        durability: Durability = "full" if kind == "dir" else "normal"
        with placed(target, kind, path) as place:
            copy = open_plain(place, namespace=self._session.namespace, durability=durability)
            try:
                # First: a store in clear that was given a key could not be opened any more.
                require_empty(copy)
                behind = _behind_same_cipher(self._session.store, copy)
                with _salvageable(self._session.store, near=None if kind not in _SHAPES else path) as (source, lost):
                    done = repair(source, behind, progress, values=_plain(source).value)
                    done = replace(done, lost=(*lost, *done.lost))
            finally:
                copy.close()
        return done

    def rekey(self, progress: Callable[[int], None] | None = None) -> int:
        """Wrap every data key by the cipher's current key; how many were not. What they encrypt is not touched.

        Open every writer with the new current key first. Once this has returned, older keys can be taken from the
        cipher. `progress` is told how many keys were looked at since it was last told. Damaged, when all others are
        wrapped, if some cannot be: the message says which. Conflict if others go on making keys wrapped by another;
        NotEncrypted if the store was opened without a cipher.
        """
        self._session.check_open()
        store = self._session.store
        if not isinstance(store, Rewrapping):
            raise NotEncrypted("the store was opened without a cipher, so there are no keys to change")
        return store.rewrap(progress)

    def _looked_at(self, target: str | os.PathLike[str], *, deep: bool) -> Report:
        copy = open_plain(target, namespace=self._session.namespace, durability="normal")
        try:
            behind = _behind_same_cipher(self._session.store, copy)
            return verify.verify(behind, self._session.namespace, deep=deep)
        finally:
            copy.close()


_SHAPES = {"sqlite": "a path, or sqlite:///path", "dir": "dir:path"}


def _plain(store: Store) -> Store:
    """The store itself, without the cipher that it is behind."""
    return store.plain if isinstance(store, Rewrapping) else store


def _require_elsewhere(path: str, target: str) -> None:
    """Refuse a target that is the store itself, or lies in its folder: whoever wrote there would write to the store."""
    here, there = os.path.realpath(path), os.path.realpath(target)
    if there == here:
        raise AlreadyExists(f"{target}: that is the store itself; nothing was written. Name a new one")
    if there.startswith(os.path.join(here, "")):
        raise InvalidArgument(f"{target}: that is in the folder of the store; nothing was written. Name another place")


@contextmanager
def untouched(url: str | os.PathLike[str], *, near: str | os.PathLike[str]) -> Generator[str]:
    """An address under which a store can be opened without a byte of it being changed: that of a copy, for a file.

    Who opens a file moves into it what a process that died has left in the WAL. The copy is beside `near`.
    """
    kind, path = path_of(url)
    if kind != "sqlite":
        yield os.fspath(url)
        return
    to_kind, to = path_of(near)
    if to_kind in _SHAPES:
        _require_elsewhere(path, to)
    with _scratch(to if to_kind in _SHAPES else None) as folder:
        from holdfast.stores.sqlite.raw import copy_raw  # noqa: PLC0415

        yield copy_raw(path, folder)


def _scratch(near: str | None) -> TemporaryDirectory[str]:
    folder = None if near is None else os.path.dirname(os.path.realpath(near))
    if folder is not None and not os.path.isdir(folder):
        raise StoreError(f"{near}: the folder {folder} does not exist; create it first")
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - slow to import, and only for repairs

    try:
        return TemporaryDirectory(prefix=".holdfast-", dir=folder)
    except OSError as error:
        raise StoreError(f"{folder or 'the folder for temporary files'}: nothing can be written there") from error


@contextmanager
def _salvageable(store: Store, near: str | None) -> Generator[tuple[Store, list[Problem]]]:
    """A store as what can be read of it is best read: itself, or a mended copy; and what that cannot say."""
    plain = _plain(store)
    if not isinstance(plain, Mending):
        yield store, []
        return
    with _scratch(near) as folder:
        mended, told = plain.mended(folder)
        try:
            yield _behind_same_cipher(store, mended), told
        finally:
            mended.close()


def _behind_same_cipher(store: Store, other: Store) -> Store:
    if isinstance(store, Rewrapping):
        return store.over(other)
    if other.keys(after=b"", limit=1):
        raise WrongKey("the other store is encrypted, and this one is not: name a new store. Nothing was written")
    return other
