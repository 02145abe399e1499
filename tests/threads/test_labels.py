"""Labels and tags that come later: the checkpoint does not change, the head stays, nothing of the state is stored."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Conflict, Holdfast, InvalidArgument, NotFound, Retention
from holdfast.threads.branches import named
from holdfast.threads.scan import checkpoint_at, thread_named
from holdfast.types import Checkpoint
from tests.covers import covers
from tests.selection import every_store
from tests.threads.wholes import CIPHER, KINDS, fill, opened, state_at


def label(hf: Holdfast, thread: str, ref: str, name: str) -> Checkpoint:
    return named(hf.context, thread, ref, label=name)


@covers("C8")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cipher", [None, CIPHER], ids=["plain", "encrypted"])
def test_an_earlier_checkpoint_is_found_by_its_new_label_and_the_head_stays(
    kind: str, cipher: Any, tmp_path: Path
) -> None:
    with opened(kind, tmp_path, cipher=cipher) as hf:
        fill(hf)
        thread = hf.thread("t")
        before, head = thread.load("@5"), thread.latest()
        made = label(hf, "t", "@5", "before it went wrong")
        assert head is not None
        assert (made.parent, made.step, made.trigger) == (before.id, before.step, "label")
        assert thread.load("@before it went wrong").state == before.state
        again = hf.thread("t").latest()
        assert again is not None
        assert (again.id, again.state) == (head.id, head.state)
        assert thread.load(before.id).label is None
        # Both go on as if nothing had been.
        assert hf.thread("t").save({**state_at(3), "new": True}).parent == head.id
        hf.thread("t").rewind(made)
        hf.thread("t").save({**state_at(6), "new": 2})
        hf.thread("t").save({**state_at(7), "new": 3})
        hf.optimize()
        assert hf.verify().ok
        assert hf.thread("t").load(made.id).state == before.state


def test_an_interrupt_while_an_earlier_checkpoint_is_labelled_leaves_the_head_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.open(tmp_path / "t.db") as hf:
        for n in range(3):
            hf.thread("t").save(state_at(n), expect=holdfast.ANY)
        store = hf.context.store
        commit = store.commit

        def interrupted(made: Any) -> Any:
            done = commit(made)
            signal.raise_signal(signal.SIGINT)
            return done

        monkeypatch.setattr(store, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            label(hf, "t", "@-3", "first")
        latest = hf.thread("t").latest()
        assert latest is not None
        assert latest.state == state_at(2)
        assert hf.thread("t").load("@first").state == state_at(0)


@every_store("each store labels in its own way")
@pytest.mark.parametrize("kind", KINDS)
def test_the_head_is_labelled_in_one_move(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as hf:
        thread = hf.thread("t")
        thread.save(state_at(1), tags=["a"], metadata={"n": 1}, label="old")
        position = thread_named(hf.context.store, "t")
        made = label(hf, "t", "@-1", "good")
        now = thread_named(hf.context.store, "t")
        assert position is not None
        assert now is not None
        assert now.position.move == position.position.move + 1
        head = hf.thread("t").latest()
        assert head is not None
        assert (head.id, head.label, head.tags, head.metadata) == (made.id, "good", ("a",), {"n": 1})
        assert head.state == state_at(1)
        saved = hf.thread("t").save(state_at(2))
        assert (saved.step, saved.parent) == (2, made.id)
        assert hf.verify().ok


def test_a_tag_is_added_and_the_label_stays(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as hf:
        hf.thread("t").save(state_at(1), tags=["a"], label="old")
        made = named(hf.context, "t", "@old", tags=["b", "a"])
        assert (made.label, made.tags) == ("old", ("a", "b"))
        found = hf.thread("t").find(tag="b")
        assert found is not None
        assert found.id == made.id


def test_nothing_of_the_state_is_stored_again(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as hf:
        hf.thread("t").save(state_at(8))
        made = label(hf, "t", "@-1", "good")
        row = thread_named(hf.context.store, "t")
        assert row is not None
        stored = checkpoint_at(hf.context.store, row.position.thread, made.seq)
        assert stored is not None
        assert len(stored.skeleton) < 500
        assert not [span for span in stored.refs.spans if span.last == made.seq]


def test_what_has_a_label_is_not_pruned(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as hf:
        thread = hf.thread("t")
        for n in range(1, 9):
            thread.save(state_at(n))
        label(hf, "t", "@2", "kept")
        hf.thread("t").prune(Retention(keep_last=1))
        assert hf.thread("t").load("@kept").state == state_at(2)
        assert hf.verify().ok


def test_a_run_that_is_not_completed_keeps_its_open_step(tmp_path: Path) -> None:
    asked: list[int] = []

    def model() -> int:
        asked.append(1)
        return 1

    with opened("sqlite", tmp_path) as hf:
        with hf.run("t", start={"n": 0}) as run:
            for _ in run.steps():
                run.model(model)
                run.wait("ok?")
        with pytest.raises(Conflict, match=r"its open step; nothing was changed\. Fork the thread"):
            label(hf, "t", "@-1", "x")
        hf.answer("t", "ok?", True)
        with hf.run("t") as run:
            for _ in run.steps():
                run.model(model)
                run.wait("ok?")
                run.finish("done")
        assert asked == [1]
        with pytest.raises(Conflict, match="restart it"):
            label(hf, "t", "@0", "started")
        label(hf, "t", "@-1", "ended")
        with hf.run("t") as run:
            assert run.result == "done"
        hf.thread("t").fork("started", at="@0")
        label(hf, "started", "@-1", "started")
        assert hf.thread("started").load("@started").state == {"n": 0}


def test_what_cannot_be_named(tmp_path: Path) -> None:
    with opened("memory", tmp_path) as hf:
        hf.thread("t").save({})
        with pytest.raises(NotFound):
            label(hf, "none", "@-1", "x")
        with pytest.raises(NotFound):
            label(hf, "t", "@7", "x")
        with pytest.raises(InvalidArgument):
            label(hf, "t", "@-1", "")
        with pytest.raises(InvalidArgument):
            named(hf.context, "t", "@-1")
        assert hf.thread("t").count() == 1
