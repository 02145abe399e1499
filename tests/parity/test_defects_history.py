"""Defects F1 to F11, which Holdfast must not have: what is done with history."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import (
    AlreadyExists,
    GiveUp,
    Holdfast,
    InvalidArgument,
    NotFound,
    Protected,
    Retention,
    TooLarge,
    WrongKey,
)
from tests.parity.defects_scene import (
    WallClock,
    everywhere,
    files,
    fill,
    latest,
    on_disk,
    opened,
    place,
    seqs,
    size,
    state_at,
    with_a_fleet,
)


@with_a_fleet
def test_f1_what_is_said_of_a_checkpoint_is_stored_and_found(url: str) -> None:
    with opened(url) as hf:
        hf.thread("t").save({"n": 1}, label="asked", tags=["a", "b"], metadata={"k": [1, {"deep": None}]})
        hf.thread("t").save({"n": 2}, tags=["b"], status="waiting")
        hf.thread("t").fork("fork", at="@asked")
        for name in ("t", "fork"):
            thread = hf.thread(name)
            for filters in ({"label": "asked"}, {"tag": "a"}):
                found = thread.find(**filters)
                assert found is not None
                assert (found.label, found.tags, found.metadata) == ("asked", ("a", "b"), {"k": [1, {"deep": None}]})
        assert seqs(hf.thread("t"), tag="b") == [2, 1]
        assert seqs(hf.thread("t"), tag="b", status="waiting") == [2]
        assert seqs(hf.thread("t"), tag="c") == []


@on_disk
def test_f2_a_fork_knows_where_it_comes_from_and_copies_nothing(url: str) -> None:
    with opened(url) as hf:
        origin = hf.thread("t")
        at = origin.save({"large": os.urandom(300_000), "n": 1}, step=7, label="here", tags=["a"])
        origin.save({"n": 2})
    before = size(url)
    with opened(url) as hf:
        forked = hf.thread("t").fork("fork", at=at)
        head = forked.head()
        assert head is not None
        assert (head.parent, head.step, head.label, head.tags) == (at.id, 7, "here", ("a",))
        assert latest(forked).state == hf.thread("t").load(at).state
        with pytest.raises(AlreadyExists):
            hf.thread("t").fork("fork")
        assert forked.count() == 1
    assert size(url) - before < 30_000


@everywhere
def test_f3_going_back_deletes_nothing(hf: Holdfast) -> None:
    thread = hf.thread("t")
    made = fill(thread, 5)
    thread.rewind(made[1])
    assert latest(thread).state == state_at(2)
    branch = thread.save({"branch": 1})
    assert branch.parent == made[1].id
    for n, checkpoint in enumerate(made, 1):
        assert thread.load(checkpoint).state == state_at(n)
    thread.rewind(made[4])
    assert latest(thread).state == state_at(5)
    assert seqs(thread) == [6, 5, 4, 3, 2, 1]
    assert thread.load(branch).state == {"branch": 1}


@everywhere
def test_f4_nothing_is_deleted_unless_told_and_never_what_is_marked(url: str) -> None:
    with opened(url) as hf:
        for n in range(1, 151):
            hf.thread("t").save({"n": n})
        hf.maintain()
        hf.optimize()
        assert hf.thread("t").count() == 150
    with opened(url, retention=Retention(keep_last=2)) as hf:
        thread = hf.thread("kept")
        for n in range(1, 11):
            thread.save({"n": n}, label="mark" if n == 3 else None, status="completed" if n == 4 else "running")
            if n == 5:
                thread.fork("fork")
        hf.maintain()
        assert seqs(thread) == [10, 9, 5, 4, 3]
        assert latest(hf.thread("fork")).state == {"n": 5}


def effects_of_options(folder: Path) -> dict[str, Callable[[], object]]:
    """For each option of `open` and of a retention, something that is other than without it."""

    def saved(**options: Any) -> Holdfast:
        hf = opened("memory:", **options)
        for n in range(4):
            hf.thread("t").save({"text": f"a secret {n}"}, label="kept" if n == 1 else None)
        hf.maintain()
        return hf

    def kept(**limits: Any) -> int:
        with saved() as hf:
            hf.thread("t").save({"n": 1}, status="completed")
            hf.thread("t").save({"n": 2})
            return hf.thread("t").prune(Retention(**limits)).kept

    def too_large() -> bool:
        with pytest.raises(TooLarge):
            saved(max_state_bytes=10)
        return True

    def refused_without_the_key() -> bool:
        cipher = holdfast.Cipher(keys={"k": b"k" * 32}, current="k")
        with opened(str(folder / "sealed.db"), cipher=cipher) as hf:
            hf.thread("t").save({"n": 1})
        with pytest.raises(WrongKey):
            opened(str(folder / "sealed.db"))
        return True

    def called() -> bool:
        with opened("memory:", tools=[named]) as hf:
            with hf.run("t", start={}) as run:
                run.finish(run.tool("named"))
            return bool(run.result == "called")

    def elsewhere() -> bool:
        url = str(folder / "spaces.db")
        with opened(url) as one, opened(url, namespace="two") as two:
            one.thread("t").save({})
            return list(two.threads()) == []

    def held(limit: int) -> int:
        with saved(base_bytes=limit) as hf:
            return hf._session.bases.size  # what it does is seen nowhere else: it saves time

    return {
        "namespace": elsewhere,
        "durability": lambda: syncs(folder / "full", "full") > syncs(folder / "off", "off") == 0,
        "retention": lambda: saved(retention=Retention(keep_last=1)).thread("t").count() == 2,
        "max_state_bytes": too_large,
        "base_bytes": lambda: held(1 << 20) > held(0) == 0,
        "tools": called,
        "cipher": refused_without_the_key,
        "redact": lambda: "secret" not in latest(saved(redact=hidden).thread("t")).state["x"],
        "keep_last": lambda: kept(keep_last=1) < kept(keep_last=3),
        "older_than": lambda: kept(older_than=0) < kept(older_than=3_600),
        "keep_newest_completed": lambda: kept(keep_last=1, keep_newest_completed=False) < kept(keep_last=1),
        "keep_labelled": lambda: kept(keep_last=1, keep_labelled=False) < kept(keep_last=1),
    }


def syncs(folder: Path, durability: Any) -> int:
    with pytest.MonkeyPatch.context() as patched:
        made: list[int] = []
        for name in ("fsync", "fdatasync"):
            patched.setattr(os, name, made.append)
        with holdfast.open(f"dir:{folder}", durability=durability) as hf:
            hf.thread("t").save({"n": 1})
    return len(made)


def hidden(text: str) -> str:
    return "x"


@holdfast.tool(effect="read")
def named() -> str:
    return "called"


def test_f5_no_option_is_taken_and_ignored(tmp_path: Path) -> None:
    effects = effects_of_options(tmp_path)
    given = inspect.signature(holdfast.open).parameters.keys() - {"url"}
    assert effects.keys() == given | {field.name for field in msgspec.structs.fields(Retention)}
    for name, has_effect in effects.items():
        assert has_effect(), name
    with pytest.raises(TypeError):
        holdfast.open("memory:", compress=True)  # type: ignore[call-arg] # the point


@everywhere
def test_f6_what_has_expired_is_gone_for_every_verb(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(url, retention=Retention(older_than=timedelta(days=1))) as hf:
        with monkeypatch.context() as patched:
            WallClock(patched)  # some years ago
            old = fill(hf.thread("t"), 3)
            fill(hf.thread("u"), 2)
        thread = hf.thread("t")
        thread.save({"n": "new"})
        hf.maintain()  # what the handle does by itself soon after a save
        assert (seqs(thread), thread.count()) == ([4], 1)
        assert latest(thread).state == {"n": "new"}
        for checkpoint in old:
            with pytest.raises(NotFound):
                thread.load(checkpoint)
        # What is the newest stays, however old.
        assert (seqs(hf.thread("u")), latest(hf.thread("u")).state) == ([2], state_at(2))
        assert hf.verify().ok


@on_disk
def test_f7_history_is_the_backup_and_a_backup_is_a_store_of_its_own(url: str, tmp_path: Path) -> None:
    with opened(url) as hf:
        fill(hf.thread("t"), 3)
        assert not [path for path in files(url) if "backup" in path.name or path.suffix == ".bak"]
        copies = (
            [f"dir:{tmp_path}/one", f"dir:{tmp_path}/two"]
            if place(url).is_dir()
            else [
                str(tmp_path / "one.db"),
                str(tmp_path / "two.db"),
            ]
        )
        hf.backup(copies[0])
        hf.thread("t").save(state_at(4))
        hf.backup(copies[1])
        with pytest.raises(AlreadyExists):
            hf.backup(copies[0])
    for n, copy in enumerate(copies, 3):
        with opened(copy) as hf:
            assert latest(hf.thread("t")).state == state_at(n)
            assert hf.thread("t").count() == n


@everywhere
def test_f8_a_deleted_checkpoint_leaves_nothing_dangling(hf: Holdfast) -> None:
    thread = hf.thread("t")
    made = fill(thread, 4)
    thread.fork("fork", at=made[1])
    thread.delete(made[1])
    with pytest.raises(NotFound):
        thread.load(made[1])
    with pytest.raises(NotFound):
        thread.rewind(made[1])
    with pytest.raises(Protected):
        thread.delete("@-1")
    assert seqs(thread) == [4, 3, 1]
    assert [thread.load(f"@-{n}").seq for n in (1, 2, 3)] == [4, 3, 1]
    for checkpoint in (made[0], made[2], made[3]):
        assert thread.load(checkpoint).state == state_at(checkpoint.step)
    assert latest(hf.thread("fork")).state == state_at(2)
    hf.optimize()
    assert hf.verify().ok
    assert thread.save(state_at(5)).seq == 5


@everywhere
def test_f9_the_verbs_are_complete(hf: Holdfast) -> None:
    for name in ("a", "b", "c"):
        fill(hf.thread(name), 5)
    hf.thread("b").save({}, status="completed", label="end", tags=["x"])
    assert [info.name for info in hf.threads(limit=2)] == ["a", "b"]
    assert [info.name for info in hf.threads(limit=2, after="b")] == ["c"]
    assert [info.name for info in hf.threads(prefix="b")] == ["b"]
    assert [info.name for info in hf.threads(status="completed")] == ["b"]
    thread = hf.thread("a")
    assert seqs(thread, limit=2) == [5, 4]
    assert seqs(thread, limit=2, before="@4") == [3, 2]
    assert seqs(hf.thread("b"), status="completed") == seqs(hf.thread("b"), tag="x") == [6]
    thread.delete(thread.load("@3").id)
    assert seqs(thread) == [5, 4, 2, 1]
    hf.thread("c").drop()
    assert [info.name for info in hf.threads()] == ["a", "b"]


@everywhere
def test_f10_prune_is_checked_and_its_counts_are_true(hf: Holdfast) -> None:
    thread = hf.thread("t")
    fill(thread, 6)
    wrongs: list[dict[str, Any]] = [{}, {"keep_last": -1}, {"keep_last": 1.5}, {"keep_last": True}, {"older_than": -1}]
    for wrong in wrongs:
        with pytest.raises(InvalidArgument):
            Retention(**wrong)
    planned = thread.prune(Retention(keep_last=2), dry_run=True)
    assert thread.count() == 6
    done = thread.prune(Retention(keep_last=2))
    assert [checkpoint.seq for checkpoint in done.removed] == [checkpoint.seq for checkpoint in planned.removed]
    assert (len(done.removed), done.kept, thread.count()) == (4, 2, 2)
    done = thread.prune(Retention(keep_last=0))
    assert (len(done.removed), done.kept, seqs(thread)) == (1, 1, [6])
    assert latest(thread).state == state_at(6)
    assert thread.prune(Retention(keep_last=0)).removed == ()


@with_a_fleet
def test_f11_an_unknown_thread_is_empty_to_look_at_and_not_found_to_change(hf: Holdfast) -> None:
    hf.thread("other").save({})
    thread = hf.thread("unknown")
    looked = [thread.latest(), thread.latest(fallback=True), thread.head(), thread.find(label="x")]
    assert looked == [None] * 4
    assert (thread.step(), thread.count(), list(thread.history())) == (0, 0, [])
    changes: list[Callable[[], Any]] = [
        lambda: thread.load("@-1"),
        lambda: thread.delete("@-1"),
        lambda: thread.rewind("@-1"),
        lambda: thread.fork("fork"),
        thread.drop,
        lambda: thread.prune(Retention(keep_last=1)),
        lambda: thread.diff("@-1", "@-1"),
        lambda: list(thread.history(before="@-1")),
        lambda: hf.effects("unknown"),
        lambda: hf.answer("unknown", "question", True),
        lambda: hf.cancel("unknown", "reason"),
        lambda: hf.settle("unknown", 1, GiveUp()),
        lambda: hf.undo("unknown", to="@-1"),
        lambda: hf.progress("unknown"),
        lambda: hf.run("unknown").__enter__(),
    ]
    for change in changes:
        with pytest.raises(NotFound):
            change()
    assert [info.name for info in hf.threads()] == ["other"]
