"""Checking beside writers: what they do meanwhile is no damage, and what is damage is still told."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import Damaged
from holdfast.stores.contract import KeyRow, Refs
from holdfast.stores.log import DirectoryStore
from holdfast.stores.log.groups import ThreadLog
from holdfast.stores.log.namespace import Namespace
from holdfast.testing.contract.build import Line, holds, value
from tests.stores.log.conftest import log_of


def test_threads_that_are_made_and_dropped_meanwhile_are_no_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"dir:{tmp_path / 'store'}"
    with holdfast.open(url, durability="off") as hf, holdfast.open(url, durability="off") as other:
        for name in ("dropped", "stays"):
            hf.thread(name).save({"messages": ["a word"] * 20})
        hf.thread("dropped").fork("fork")
        everything = Namespace.everything
        waits = True

        def slowly(space: Namespace) -> Iterable[ThreadLog]:
            nonlocal waits
            found = list(everything(space))
            if waits:
                waits = False
                other.thread("made").save({"n": 1})
                other.thread("dropped").drop()
            return found

        monkeypatch.setattr(Namespace, "everything", slowly)
        assert list(hf.context.store.check()) == []
        assert not waits


def test_a_copy_of_a_threads_folder_is_told(tmp_path: Path) -> None:
    with holdfast.open(f"dir:{tmp_path / 'store'}", durability="off") as hf:
        hf.thread("a").save({"n": 1})
        threads = tmp_path / "store" / "default" / "threads"
        shutil.copytree(threads / "a", threads / "b")
        assert ["a copy of the thread with number" in problem.what for problem in hf.context.store.check()] == [True]


def test_the_data_of_a_thread_whose_folder_was_renamed_is_kept(store: DirectoryStore, path: Path) -> None:
    """The check reports it, and the folder can be renamed back."""
    shared, key = value(b'"an image"'), KeyRow(bytes(8), "k", b"wrapped")
    Line(store, "a").save("x", blobs=[shared], refs=Refs(blobs=(shared.digest,)), key=key)
    folder = log_of(path, "a").parent
    folder.rename(folder.with_name("b"))
    store.reclaim()
    with pytest.raises(Damaged, match="renamed"):
        store.sweep_blobs(store.sweep_blobs().epoch)
    assert ["renamed" in problem.what for problem in store.check()] == [True]
    folder.with_name("b").rename(folder)
    assert holds(store, shared)
    assert store.keys(limit=9) == [key]
    assert list(store.check()) == []
