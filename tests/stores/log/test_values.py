"""Shared values: what a save brings is there afterwards, whatever lay there before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.stores.log import DirectoryStore
from holdfast.testing.contract.build import holds, saved, value
from tests.stores.log.conftest import Open


def file_of(path: Path, digest: bytes) -> Path:
    return path / "default" / "blobs" / digest.hex()[:2] / digest.hex()


@pytest.mark.parametrize("pieces", [(b"a large prompt",), (b"a large", b" prompt")])
def test_a_damaged_value_is_written_again_by_who_brings_it(
    store: DirectoryStore, open_store: Open, path: Path, pieces: tuple[bytes, ...]
) -> None:
    shared = value(*pieces)
    saved(store, "a", "x").save("y", blobs=[shared])
    file_of(path, shared.digest).write_bytes(b"a large prompT")
    other = open_store()
    saved(other, "b", "x").save("y", blobs=[shared])
    assert holds(open_store(), shared)


def test_a_value_that_was_seen_sound_is_not_read_again(
    store: DirectoryStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = value(b"a large prompt")
    line = saved(store, "a", "x")
    line.save("y", blobs=[shared])
    before = file_of(path, shared.digest).stat()
    opened: list[str] = []
    real = os.open

    def watched(name: str, *args: int, **more: int) -> int:
        opened.append(str(name))
        return real(name, *args, **more)

    monkeypatch.setattr(os, "open", watched)
    line.save("z", blobs=[shared])
    assert not [name for name in opened if "blobs" in name]
    assert file_of(path, shared.digest).stat() == before
