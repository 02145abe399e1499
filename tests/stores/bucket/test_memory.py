"""A bucket in the memory of this process: the suite that every store passes, and writers that meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from holdfast.stores.contract import Store
from holdfast.stores.log.bucket_store import BucketStore
from holdfast.testing import StoreContract
from holdfast.testing.contract.build import saved, texts_of

_places: dict[Path, MemoryStore] = {}


def opened(place: Path, namespace: str = "default", *, grace: float = 0, **options: Any) -> BucketStore:
    # Without a grace time, so that blobs can be removed at once.
    client = _places.setdefault(place, MemoryStore())
    return BucketStore("s3://memory/store", namespace=namespace, client=client, grace=grace, **options)


class TestBucketStore(StoreContract):
    durable = True
    joint_commits = False

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        return opened(tmp_path, namespace)


def test_what_another_writer_appended_first_is_read_and_the_write_is_planned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = saved(opened(tmp_path), "a", "x")
    line.save("y")
    other: Any = opened(tmp_path)
    log = other._space.named("a")
    append = log.device.append
    meanwhile = [True]

    def late(*args: Any, sync: bool) -> Any:
        if meanwhile:
            meanwhile.pop()
            line.save("z")
        return append(*args, sync=sync)

    monkeypatch.setattr(log.device, "append", late)
    assert other.delete(line.number, [1]) == 1
    assert not meanwhile
    assert texts_of(other, line.span()) == [["x", "y", "z"]]
    assert [row.seq for row in other.checkpoints(line.number, before=None, limit=9)] == [3, 2]
    assert list(other.check()) == []
