"""Reading a thread that goes on meanwhile: between two reads its head may be followed, and deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, NotFound, Retention
from holdfast.stores.contract import CheckpointRow
from tests.covers import covers
from tests.selection import every_store
from tests.threads.wholes import KINDS, opened

pytestmark = every_store("readers beside writers see what the store lets them see")


@pytest.fixture(params=KINDS)
def hf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    with opened(request.param, tmp_path) as hf:
        yield hf


def gone_on(hf: Holdfast, monkeypatch: pytest.MonkeyPatch, times: int = 1) -> list[int]:
    """Before the next checkpoints are read, somebody saves another and deletes all but that; what they saved."""
    store: Any = hf.context.store
    read: Callable[[int, int], CheckpointRow | None] = store.checkpoint
    saved: list[int] = []

    def checkpoint(thread: int, seq: int) -> CheckpointRow | None:
        if len(saved) < times:
            monkeypatch.setattr(store, "checkpoint", read)
            made = hf.thread("t").save({"n": "later"}, expect=hf.thread("t").head())
            hf.thread("t").prune(Retention(keep_last=1))
            monkeypatch.setattr(store, "checkpoint", checkpoint)
            saved.append(made.seq)
        return read(thread, seq)

    monkeypatch.setattr(store, "checkpoint", checkpoint)
    return saved


def filled(hf: Holdfast, schema_version: int | None = None) -> None:
    for n in range(3):
        hf.thread("t", schema_version=schema_version).save({"n": n}, expect=hf.thread("t").head())


@pytest.mark.parametrize("times", [1, 3])
def test_the_head_is_the_newest(hf: Holdfast, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    filled(hf)
    saved = gone_on(hf, monkeypatch, times)
    head = hf.thread("t").head()
    assert head is not None
    assert head.seq == saved[-1]


@covers("continuum/save replaces the newest at once")
@pytest.mark.parametrize("times", [1, 3])
def test_what_is_loaded_as_the_head_is_the_newest(hf: Holdfast, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    filled(hf)
    saved = gone_on(hf, monkeypatch, times)
    found = hf.thread("t").load("@-1")
    assert (found.seq, found.state) == (saved[-1], {"n": "later"})


def test_a_handle_that_looks_sees_the_newest(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(hf)
    saved = gone_on(hf, monkeypatch)
    assert hf.thread("t").save({"n": "mine"}).seq == saved[0] + 1
    assert hf.verify().ok


def test_a_run_that_is_claimed_meanwhile_finds_the_newest(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(hf, schema_version=1)
    gone_on(hf, monkeypatch)
    with hf.run("t", schema_version=1) as run:
        assert run.state == {"n": "later"}
        run.finish()


def test_what_is_not_there_is_looked_for_once(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(hf)
    first = hf.thread("t").load("@1")
    hf.thread("t").prune(Retention(keep_last=1))
    store: Any = hf.context.store
    read, reads = store.checkpoint, list[int]()

    def checkpoint(thread: int, seq: int) -> Any:
        reads.append(seq)
        return read(thread, seq)

    monkeypatch.setattr(store, "checkpoint", checkpoint)
    for ref in (first.id, "@99", "@-9", "@no such label"):
        reads.clear()
        with pytest.raises(NotFound):
            hf.thread("t").load(ref)
        assert len(reads) <= 6
