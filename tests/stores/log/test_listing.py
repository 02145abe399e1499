"""Listing the threads of a folder that other handles fill."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast.errors import StoreFull
from holdfast.stores.log import DirectoryStore, disk
from holdfast.testing.contract.build import names_of, saved
from tests.stores.log.conftest import Open


def test_a_long_name_whose_making_failed_at_first_is_listed_when_it_is_there(
    store: DirectoryStore, open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "n" * 200
    saved(store, "x", "x")
    write = disk.write_all

    def full(descriptor: int, data: bytes) -> None:
        if b'"thread"' in data:
            raise OSError(errno.ENOSPC, "no room")
        write(descriptor, data)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_all", full)
        with pytest.raises(StoreFull):
            saved(store, name, "x")
    os.utime(path / "default" / "threads", (1, 1))  # long ago, so that what was listed is kept
    reader = open_store()
    assert names_of(reader) == ["x"]
    saved(store, name, "x")
    assert names_of(reader) == [name, "x"]
