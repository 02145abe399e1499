"""Reading a thread that goes on meanwhile: between two reads its head may be followed, and deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import Conflict, Holdfast, NotFound, Retention
from holdfast.stores.contract import Store
from tests.covers import covers
from tests.selection import every_store
from tests.threads.wholes import KINDS, opened

pytestmark = every_store("readers beside writers see what the store lets them see")


@pytest.fixture(params=KINDS)
def hf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    with opened(request.param, tmp_path) as hf:
        yield hf


def later(time: int) -> dict[str, Any]:
    """The state that the other writer saves. It shares nothing with the states before it."""
    return {"n": "later", "words": [f"time {time}, word {n}" for n in range(50)]}


def gone_on(hf: Holdfast, monkeypatch: pytest.MonkeyPatch, verb: str, times: int = 1) -> list[int]:
    """Before the next calls of a verb, another writer saves a checkpoint and deletes all others; what it saved."""
    store: Any = hf.context.store
    read: Callable[..., Any] = getattr(store, verb)
    saved: list[int] = []

    def reading(*given: Any, **named: Any) -> Any:
        if len(saved) < times:
            monkeypatch.setattr(store, verb, read)
            made = hf.thread("t").save(later(len(saved) + 1), expect=hf.thread("t").head())
            hf.thread("t").prune(Retention(keep_last=1))
            hf.context.bases.clear()  # as if the other writer were another process
            monkeypatch.setattr(store, verb, reading)
            saved.append(made.seq)
        return read(*given, **named)

    monkeypatch.setattr(store, verb, reading)
    return saved


def filled(hf: Holdfast, schema_version: int | None = None) -> None:
    for n in range(3):
        state = {"n": n, "words": [f"word {n} {i}" for i in range(50)]}
        hf.thread("t", schema_version=schema_version).save(state, expect=hf.thread("t").head())
    hf.context.bases.clear()


@pytest.mark.parametrize("times", [1, 3])
def test_the_latest_is_the_newest(hf: Holdfast, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The cells of the head that was found are gone before they are read."""
    filled(hf)
    saved = gone_on(hf, monkeypatch, "cells", times)
    found = hf.thread("t").latest()
    assert found is not None
    assert (found.seq, found.state) == (saved[-1], later(times))


def test_the_thread_and_its_head_are_one_call_of_the_store(hf: Holdfast) -> None:
    filled(hf)
    calls: list[str] = []

    class Counting:
        def __getattr__(self, verb: str) -> Any:
            calls.append(verb)
            return getattr(store, verb)

    store, hf.context.store = hf.context.store, cast("Store", Counting())
    assert hf.thread("t").latest() is not None
    assert calls == ["head", "cells"]
    calls.clear()
    assert hf.thread("t").head() is not None
    assert hf.thread("t").step() == 3
    assert calls == ["head", "head"]
    hf.context.bases.clear()
    calls.clear()
    hf.thread("t").save({"n": 1})
    assert [verb for verb in calls if verb != "hashing"] == ["head", "cells", "commit"]
    hf.context.store = store


@covers("continuum/save replaces the newest at once")
@pytest.mark.parametrize("times", [1, 3])
def test_what_is_loaded_as_the_head_is_the_newest(hf: Holdfast, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    filled(hf)
    saved = gone_on(hf, monkeypatch, "walk", times)
    found = hf.thread("t").load("@-1")
    assert (found.seq, found.state) == (saved[-1], later(times))


def test_a_save_after_a_head_that_is_gone_changes_nothing(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(hf)
    saved = gone_on(hf, monkeypatch, "cells")
    with pytest.raises(Conflict):
        hf.thread("t").save({"n": "mine"})
    assert [checkpoint.seq for checkpoint in hf.thread("t").history()] == saved
    assert hf.verify().ok


@pytest.mark.parametrize("verb", ["load", "fork"])
def test_a_checkpoint_that_is_deleted_while_it_is_read_is_not_found(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    filled(hf)
    thread = hf.thread("t")
    first = thread.load("@1").id
    hf.context.bases.clear()
    saved = gone_on(hf, monkeypatch, "cells")
    fork = partial(thread.fork, "fork", at=first, state={"n": "mine"})
    read = partial(thread.load, first) if verb == "load" else fork
    with pytest.raises(NotFound, match="deleted while it was being read"):
        read()
    assert [checkpoint.seq for checkpoint in thread.history()] == saved
    assert [info.name for info in hf.threads()] == ["t"]


def test_a_run_that_is_claimed_meanwhile_finds_the_newest(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(hf, schema_version=1)
    gone_on(hf, monkeypatch, "run")
    with hf.run("t", schema_version=1) as run:
        assert run.state == later(1)
        run.finish()


def test_what_is_not_there_is_looked_for_once(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(hf)
    first = hf.thread("t").load("@1")
    hf.thread("t").prune(Retention(keep_last=1))
    store: Any = hf.context.store
    read, reads = store.walk, list[int]()

    def walk(thread: int, **which: Any) -> Any:
        reads.append(thread)
        return read(thread, **which)

    monkeypatch.setattr(store, "walk", walk)
    for ref in (first.id, "@99", "@-9", "@no such label"):
        reads.clear()
        with pytest.raises(NotFound):
            hf.thread("t").load(ref)
        assert len(reads) <= 6


def test_a_prune_keeps_a_checkpoint_that_is_made_the_head_meanwhile(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(hf)
    thread, store = hf.thread("t"), cast(Any, hf.context.store)
    rewound_to, delete = thread.load("@1").id, store.delete

    def deleting(*given: Any) -> Any:
        monkeypatch.undo()
        thread.rewind(rewound_to)
        return delete(*given)

    monkeypatch.setattr(store, "delete", deleting)
    pruned = hf.thread("t").prune(Retention(keep_last=1))
    assert [checkpoint.step for checkpoint in pruned.removed] == [2]
    assert pruned.kept == 2
    assert [checkpoint.step for checkpoint in thread.history()] == [3, 1]
    assert hf.verify().ok


@pytest.mark.parametrize("dropped", ["fork", "t"])
@pytest.mark.parametrize("verb", ["prune", "optimize"])
def test_a_thread_that_is_dropped_during_a_sweep_is_no_damage(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, verb: str, dropped: str
) -> None:
    store, thread = cast(Any, hf.context.store), hf.thread("t")
    thread.save({})
    number = store.head("t").thread.position.thread
    states = [{"plan": {"steps": [f"step {n}, part {part}" * 9 for part in range(50)]}} for n in range(3)]
    for state in states:
        thread.save(state)
    fork = thread.fork("fork")
    for state in states[:2]:
        fork.save(state)
    read, dropping = store.cells, [fork if dropped == "fork" else thread]

    def cells(spans: Any) -> Any:
        if dropping and (dropped == "t" or any(span.thread != number for span in spans)):
            dropping.pop().drop()
        return read(spans)

    monkeypatch.setattr(store, "cells", cells)
    if verb == "optimize":
        assert hf.optimize().damaged == 0
    else:
        thread.prune(Retention(keep_last=1))
    assert not dropping
    monkeypatch.undo()
    assert hf.verify().ok
    assert dropped == "fork" or hf.thread("fork").latest().state == states[1]  # type: ignore[union-attr]
