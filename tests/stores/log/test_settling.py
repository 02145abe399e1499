"""At "normal" appends are left to the system, until something durable relies on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast, Retention
from holdfast.stores.log import disk

LARGE = "stored apart from the states that hold it. " * 500


class Watched:
    """Syncs of logs and folders, and files that come or go for good, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        sync, rename, unlink, fsync = disk.sync_data, os.rename, os.unlink, os.fsync

        def watched_sync(descriptor: int) -> None:
            self.seen.append(f"sync {_shown(os.readlink(f'/proc/self/fd/{descriptor}'))}")
            sync(descriptor)

        def watched_rename(old: str, new: str) -> None:
            self.seen.append(f"rename {_shown(new)}")
            rename(old, new)

        def watched_unlink(path: str, *, dir_fd: int | None = None) -> None:
            self.seen.append(f"unlink {_shown(str(path))}")
            unlink(path, dir_fd=dir_fd)

        def watched_folder(descriptor: int) -> None:
            self.seen.append(f"folder {_shown(os.readlink(f'/proc/self/fd/{descriptor}'))}")
            fsync(descriptor)

        monkeypatch.setattr(disk, "sync_data", watched_sync)
        monkeypatch.setattr(os, "fsync", watched_folder)
        monkeypatch.setattr(os, "rename", watched_rename)
        monkeypatch.setattr(os, "unlink", watched_unlink)

    def comes_before(self, first: str, second: str) -> bool:
        """Whether the first was done, and the second was done after it."""
        at = self.seen.index(first) if first in self.seen else len(self.seen)
        return any(step.startswith(second) for step in self.seen[at + 1 :])


def _shown(path: str) -> str:
    return "/".join(path.split("/")[-2:])


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(f"dir:{tmp_path / 'store'}", durability="normal") as hf:
        yield hf


def test_cells_that_a_fork_uses_are_safe_before_it_is_there(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        hf.thread("a").save({"messages": [f"{i} " * 100 for i in range(10 * n)]})
    watched = Watched(monkeypatch)
    hf.thread("a").fork("b")
    assert watched.comes_before("sync a/log.jsonl", "rename b/log.jsonl")


def test_deletions_are_safe_before_a_value_is_removed(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    hf.thread("a").save({"text": LARGE})
    hf.thread("a").save({"text": "short"})
    hf.thread("b").save({"n": 1})
    hf.thread("a").prune(Retention(keep_last=1))
    watched = Watched(monkeypatch)
    hf.optimize()
    removed = next(step for step in watched.seen if step.startswith("unlink ") and len(step) > 64)
    assert watched.comes_before("sync a/log.jsonl", removed)
    assert watched.comes_before("sync b/log.jsonl", removed)


def test_a_drop_is_safe_when_it_returns(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    hf.thread("a").save({"n": 1})
    watched = Watched(monkeypatch)
    hf.thread("a").drop()
    assert watched.comes_before("unlink a/log.jsonl", "folder threads/a")


def test_the_drop_of_a_fork_is_safe_before_the_cells_it_used_are_removed(
    hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf.thread("a").save({"messages": [f"{n} " * 400 for n in range(20)]})
    hf.thread("a").fork("b")
    hf.thread("a").drop()  # its cells stay, for the fork
    [grave] = (tmp_path / "store" / "default" / "dropped").iterdir()
    hf.thread("b").save({"messages": ["b"]})
    watched = Watched(monkeypatch)
    hf.thread("b").drop()
    hf.optimize()
    assert watched.comes_before("unlink b/log.jsonl", "folder threads/b")
    assert watched.comes_before("folder threads/b", f"unlink {grave.name}/log.jsonl")
