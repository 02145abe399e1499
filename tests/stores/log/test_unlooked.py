"""Where the system cannot look, nothing follows: what could not be looked at is not taken for what is gone."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StoreError
from holdfast.stores.log import DirectoryStore, disk
from holdfast.testing.contract.build import saved, texts_of
from tests.stores.log.conftest import Open, log_of
from tests.stores.log.test_drop import forked_from


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path | None], None]:
    """Let the system fail where it is asked about a path, or about anything in the end."""
    real = os.stat

    def look_away(from_: Path | None) -> None:
        def stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
            if from_ is None or (isinstance(path, str | os.PathLike) and os.fspath(path) == str(from_)):
                raise OSError(errno.EIO, "the disk does not answer")
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, "stat", stat)

    return look_away


def test_a_folder_is_not_made_where_nobody_can_look(path: Path, blind: Callable[[Path | None], None]) -> None:
    """Neither there nor above: looking for a folder that is there went on for ever."""
    blind(None)
    with pytest.raises(OSError, match="does not answer"):
        disk.make_folder(str(path), sync=False)


def test_what_a_dropped_thread_left_to_its_forks_is_not_removed(
    store: DirectoryStore,
    path: Path,
    open_store: Open,
    blind: Callable[[Path | None], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    origin = saved(store, "main", "x", "y")
    forked_from(origin, "child")
    store.drop(origin.number)
    log = path / "default" / "dropped" / str(origin.number) / "log.jsonl"
    assert log.exists()
    blind(log)
    other = open_store()
    with suppress(StoreError):
        other.reclaim()
    monkeypatch.undo()
    assert log.exists()
    assert texts_of(store, origin.span()) == [["x", "y"]]


def test_a_thread_that_was_made_and_cannot_be_read_back_is_there(
    store: DirectoryStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that says that nothing was changed would be wrong."""
    real = os.open

    def full(name: Any, *args: Any, **kwargs: Any) -> int:
        if os.fspath(name) == str(log_of(path, "t")):
            raise OSError(errno.ENOSPC, "no room")
        return real(name, *args, **kwargs)

    saved(store, "other", "x")
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", full)
        line = saved(store, "t", "y")
    assert texts_of(store, line.span()) == [["y"]]
    line.save("z")
    assert texts_of(store, line.span()) == [["y", "z"]]
