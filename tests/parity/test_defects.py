"""Defects of earlier systems that no other test shows: see docs/internals/defects.md for all of them."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import (
    Checkpoint,
    Conflict,
    EveryN,
    GiveUp,
    Holdfast,
    HoldfastError,
    InvalidArgument,
    NotFound,
    Retention,
    StoreError,
    Thread,
    ToolNotDone,
    Unsupported,
)
from holdfast.errors import AlreadyExists, StoreFull, TooLarge, WrongKey
from holdfast.formats.lines import reseal
from holdfast.stores.contract import Commit, Position, Store
from tests.conftest import OpenHandle
from tests.covers import covers
from tests.runs.conftest import World
from tests.stores.log.conftest import log_of
from tests.threads.wholes import address, change_blob, flip, opened

in_sqlite = pytest.mark.parametrize("world", ["sqlite"], indirect=True)
on_disk = pytest.mark.parametrize("kind", ["sqlite", "directory"])


def latest(thread: Thread) -> Checkpoint:
    found = thread.latest()
    assert found is not None
    return found


def seqs(thread: Thread, **filters: Any) -> list[int]:
    return [checkpoint.seq for checkpoint in thread.history(**filters)]


# -- A. data that a crash loses or corrupts ----------------------------------------------------------------------------


@covers("A2")
@on_disk
def test_the_newest_is_found_if_any_other_file_is_empty(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as hf:
        for n in (1, 2, 3):
            hf.thread("t").save({"n": n}, step=n)
    data = {"store.db", "log.jsonl", "holdfast.json"}
    others = [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in data]
    assert others
    for path in others:
        kept = path.read_bytes()
        path.write_bytes(b"")
        with opened(kind, tmp_path) as hf:
            assert latest(hf.thread("t")).state == {"n": 3}, path.name
            hf.thread("t").save({"n": 4})
            hf.thread("t").rewind("@3")
        path.write_bytes(kept)
    assert not [path for path in others if re.search("latest|head|current", path.name)]


class Filling:
    """A store that has room for four commits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._room = 4

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, commit: Commit) -> Position:
        if not self._room:
            raise StoreFull("no room")
        self._room -= 1
        return self._store.commit(commit)


@covers("A13")
@in_sqlite
def test_no_step_starts_before_the_previous_one_is_stored(world: World) -> None:
    filling: Any = Filling
    started: list[int] = []
    with world.failing("t", StoreFull, world.open(store=filling), start={}, policy=EveryN(1)) as run:
        for step in run.steps():
            run.state["n"] = step
            started.append(step)
    assert started == [1, 2, 3, 4]
    assert latest(world.open().thread("t")).state == {"n": 3}


# -- B. which is the newest --------------------------------------------------------------------------------------------


@covers("B2")
def test_searches_and_lists_ignore_the_clock(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_700_000_000_000_000_000]
    monkeypatch.setattr(time, "time_ns", lambda: now[0])
    thread = hf.thread("t")
    for step, seconds in enumerate((0, -50, 70, -3_600, 20), 1):
        now[0] += seconds * 10**9
        thread.save({"n": step}, step=step, label="same", tags=["same"])
    [info] = hf.threads()
    found = (latest(thread), thread.head(), thread.find(label="same"), thread.find(tag="same"), thread.load("@same"))
    assert [each.seq for each in found if each is not None] + [info.seq] == [5] * 6
    assert seqs(thread) == seqs(thread, label="same") == seqs(thread, tag="same") == [5, 4, 3, 2, 1]
    removed = thread.prune(Retention(keep_last=2, keep_labelled=False)).removed
    assert sorted(each.seq for each in removed) == [1, 2, 3]


@covers("B4", "ares/Checkpoint.step", "ares/CheckpointManager.save.same_step", "smooth/CheckpointStore.upsert")
@covers("ares/test_multiple_steps")
def test_the_same_step_again_is_another_checkpoint(hf: Holdfast) -> None:
    thread = hf.thread("t")
    first = [thread.save({"n": n}, step=n) for n in range(3)]
    again = thread.save({"again": 0}, step=0)
    assert latest(thread).id == thread.load("@0").id == again.id
    assert thread.load(first[0]).state == {"n": 0}
    assert list(thread.history()) == [again, *first[::-1]]
    thread.delete(first[0])
    assert [checkpoint.step for checkpoint in thread.history()] == [0, 2, 1]


@covers("B5")
def test_file_times_do_not_change_the_newest(tmp_path: Path) -> None:
    with opened("directory", tmp_path) as hf:
        for n in (1, 2, 3):
            hf.thread("t").save({"n": n, "large": f"{n}" * 20_000}, step=n)
        hf.thread("t").rewind("@1")
        hf.thread("t").save({"n": 9}, step=9)
    shutil.copytree(tmp_path / "store", tmp_path / "copy", copy_function=shutil.copyfile)
    files = sorted(path for path in (tmp_path / "copy").rglob("*") if path.is_file())
    for moment, path in enumerate(reversed(files), 1_000_000_000):
        os.utime(path, (moment, moment))
    with opened("directory", tmp_path, "copy") as hf:
        assert latest(hf.thread("t")).state == {"n": 9}
        assert [checkpoint.step for checkpoint in hf.thread("t").history()] == [9, 3, 2, 1]


@covers("B6", "cortex/CheckpointManager.current_step after a restart")
def test_steps_are_counted_in_the_store(open_file: OpenHandle) -> None:
    with open_file() as hf:
        assert [hf.thread("t").save({"n": n}).step for n in range(3)] == [1, 2, 3]
        with pytest.raises(Unsupported):
            hf.thread("t").save({"n": object()})
    with open_file() as one, open_file() as other:
        mine, theirs = one.thread("t"), other.thread("t")
        assert mine.step() == theirs.step() == 3
        assert latest(mine) == latest(theirs)
        saved = mine.save({"n": 4})
        assert (saved.step, saved.seq) == (4, 4)
        with pytest.raises(Conflict):
            theirs.save({"n": 4})
        assert latest(theirs).step == 4
        assert theirs.save({"n": 5}).step == 5


@covers("B7", "cortex/Session.updated_at", "cortex/ExecutionState.updated_at", "cortex/ExecutionState.completed_at")
@covers("cortex/ExecutionState.started_at", "cortex/Session.created_at", "cortex/Session.add_message")
def test_times_are_loaded_as_saved(open_file: OpenHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_700_000_000_123_456_000]
    monkeypatch.setattr(time, "time_ns", lambda: now[0])
    with open_file() as hf:
        first = hf.thread("t").save({"n": 1})
        now[0] += 60 * 10**9
        second = hf.thread("t").save({"n": 2}, status="completed")
    assert first.created_at == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    with open_file() as hf:
        assert [each.created_at for each in hf.thread("t").history()] == [second.created_at, first.created_at]
        [info] = hf.threads()
        assert latest(hf.thread("t")).created_at == info.updated_at == second.created_at > first.created_at


# -- C. identity, names, isolation -------------------------------------------------------------------------------------


@covers("C1", "ares/CheckpointManager.cleanup.other", "ares/test_separate_sessions", "ares/checkpoint_key")
@covers("smooth/CheckpointStore.prune.isolated", "ares/CheckpointManager.cleanup", "ares/test_cleanup")
@covers("ares/CheckpointManager.has_checkpoint", "ares/CheckpointManager.has_checkpoint.none")
def test_a_name_that_starts_like_another_is_another_thread(hf: Holdfast) -> None:
    names = ["sess1", "sess", "sess1_2", "sess1_2_3", "sess1/2", "sess1 "]
    for name in names:
        for n in (1, 2):
            hf.thread(name).save({"name": name, "n": n}, expect=holdfast.ANY)
    thread = hf.thread("sess1")
    assert (thread.count(), thread.head() is None) == (2, False)
    thread.drop()
    assert (thread.count(), thread.head() is None) == (0, True)
    assert len(hf.thread("sess").prune(Retention(keep_last=1)).removed) == 1
    assert [(info.name, info.count) for info in hf.threads()] == sorted(
        (name, 2 - (name == "sess")) for name in names[1:]
    )
    for name in names[1:]:
        assert latest(hf.thread(name)).state == {"name": name, "n": 2}


@covers("C4")
def test_a_stored_text_is_not_used_as_a_path(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the secret of another program " * 2_000)
    store = tmp_path / "store"
    with opened("directory", tmp_path) as hf:
        hf.thread("t").save({"large": "x" * 60_000})
    [value] = [path for path in (store / "default" / "blobs").rglob("*") if path.is_file()]
    log = log_of(store, "t")
    kept = log.read_bytes()
    for forged in (str(tmp_path / "secret"), "../../../../secret", f"{value.name[:2]}/../../../../../secret"):
        lines = [reseal(b"{" + line[18:].replace(value.name.encode(), forged.encode())) for line in kept.splitlines()]
        log.write_bytes(b"".join(lines))
        assert log.read_bytes() != kept
        with opened("directory", tmp_path) as hf, pytest.raises(HoldfastError) as error:
            hf.thread("t").latest()
        assert "another program" not in str(error.value)
    log.write_bytes(kept)
    with opened("directory", tmp_path) as hf, pytest.raises((NotFound, InvalidArgument)):
        hf.thread("t").load("../../secret")


@covers("C6", "ares/Checkpoint.id", "smooth/Checkpoint.id", "cortex/CheckpointId", "cortex/CheckpointMetadata.id")
@covers("continuum/CheckpointId", "continuum/CheckpointData.checkpoint_id")
def test_ids_are_uuids_that_differ(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_456_000)
    saved = [hf.thread(f"thread {n}").save({"n": n}) for n in range(200)]
    saved += [hf.thread("thread 0").save({"n": n}, expect=holdfast.ANY) for n in range(100)]
    ids = [checkpoint.id for checkpoint in saved]
    assert len(set(ids)) == 300
    assert {uuid.UUID(id).version for id in ids} == {7}
    assert len({id[:-8] for id in ids}) == 300  # the last 8 digits are the seq
    assert hf.thread("thread 0").load(ids[-1]).id == ids[-1]


@covers("C10")
@on_disk
def test_nothing_is_written_through_a_link_in_a_store(kind: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("a file of another program")
    store = tmp_path / "store"
    with opened(kind, tmp_path) as hf:
        hf.thread("t").save({"n": 1})
    links = {tmp_path / "store.db-gate": outside / "file", tmp_path / "store.db-turn": outside / "file"}
    if kind == "directory":
        (outside / "log.jsonl").write_bytes(log_of(store, "t").read_bytes())
        links = {
            log_of(store, "linked").parent: outside,
            log_of(store, "t"): outside / "log.jsonl",
            store / "default" / "lock-gate": outside / "file",
            store / "default" / "counters" / "number.new": outside / "file",
        }
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    for link, target in links.items():
        kept = link.read_bytes() if link.exists() else None
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        if link.suffix == ".new":
            link.with_suffix("").unlink()  # Holdfast writes it again by way of the link
        with pytest.raises(StoreError):
            save_to(kind, tmp_path, "t", "linked")
        assert {path.name: path.read_bytes() for path in outside.iterdir()} == before
        link.unlink()
        if kept is not None:
            link.write_bytes(kept)
    with opened(kind, tmp_path) as hf:
        assert latest(hf.thread("t")).seq >= 1


def save_to(kind: str, folder: Path, *threads: str) -> None:
    with opened(kind, folder) as hf:
        for name in threads:
            hf.thread(name).save({"n": 2}, expect=holdfast.ANY)


@covers("C10")
def test_without_a_data_folder_the_default_store_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    (tmp_path / "file").write_text("not a folder")
    for variable in ("XDG_DATA_HOME", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "file" / "data"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(StoreError) as error:
        holdfast.open()
    assert isinstance(error.value.__cause__, OSError)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# -- D. several writers ------------------------------------------------------------------------------------------------


@covers("D2")
def test_of_many_that_build_on_one_checkpoint_one_is_stored(hf: Holdfast) -> None:
    base = hf.thread("t").save({"n": 0})
    together = threading.Barrier(8)

    def save(n: int) -> bool:
        thread = hf.thread("t")
        together.wait(60)
        try:
            thread.save({"n": n}, expect=base)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        stored = list(pool.map(save, range(1, 9)))
    assert stored.count(True) == 1
    found = latest(hf.thread("t"))
    assert (found.state, found.parent) == ({"n": stored.index(True) + 1}, base.id)
    assert hf.thread("t").count() == 2


@covers("D4", "continuum/SessionRecovery.detect_interrupted_sessions", "continuum/CrashRecovery after a clean end")
@covers("continuum/SessionRecovery.new", "continuum/CrashRecovery.new", "continuum/CrashRecovery of an empty store")
@in_sqlite
def test_all_interrupted_runs_are_listed_and_no_others(world: World) -> None:
    hf = world.open()
    assert list(hf.interrupted()) == []
    for name in ("first", "second", "third"):
        with world.dying(name, hf, start={}) as run:
            run.save()
    with world.running("done", hf, ends="completed", start={}) as run:
        run.finish()
    with world.running("left", hf, start={}):
        pass
    with world.failing("failed", ValueError, hf, start={}):
        raise ValueError("no")
    hf.thread("never run").save({"n": 1})
    with world.running("alive", hf, start={}):
        assert sorted(found.thread for found in world.open().interrupted()) == ["failed", "first", "second", "third"]


@covers("D7")
def test_what_is_deleted_during_a_listing_does_not_stop_it(hf: Holdfast) -> None:
    thread = hf.thread("t")
    for n in range(1, 421):
        thread.save({"n": n})
    listing = hf.thread("t").history()
    given = [next(listing).seq]
    thread.prune(Retention(keep_last=1))
    given += [checkpoint.seq for checkpoint in listing]
    assert given[0] == 420
    assert given == sorted(given, reverse=True)
    for n in range(210):
        hf.thread(f"u{n:03}").save({"n": n})
    names = hf.threads(prefix="u")
    assert next(names).name == "u000"
    for n in range(100, 210):
        hf.thread(f"u{n:03}").drop()
    assert {info.name for info in names} >= {f"u{n:03}" for n in range(1, 100)}
    assert seqs(thread) == [420]


# -- E. a checkpoint from which an agent can resume --------------------------------------------------------------------


@covers("E4", "cortex/StepStatus.Failed", "cortex/StepResult.is_failed", "cortex/StepStatus.Running")
@covers("cortex/StepStatus.Completed", "cortex/StepResult.status", "cortex/StepResult.is_complete", "cortex/StepId")
@covers("cortex/test_step_result_states", "cortex/StepResult.step_id", "cortex/test_execution_with_failure")
@covers("cortex/DurableError.StepFailed", "continuum/CheckpointData.tool_calls_pending", "continuum/ToolResult")
@in_sqlite
def test_the_journal_has_a_status_for_done_not_done_failed_and_started(world: World) -> None:
    def refuse() -> None:
        raise ToolNotDone("refused")

    @holdfast.tool(effect="read")
    def fail() -> None:
        raise ConnectionError("no network")

    def begin() -> None:
        world.kill(run)

    with world.dying("t", start={}) as run:
        run.model(lambda: "fine", key="one")
        for tool, key in ((refuse, "two"), (fail, "three")):
            with pytest.raises((ToolNotDone, ConnectionError)):
                run.tool(tool, {}, key=key)
        run.tool(begin, {}, key="four")
    hf = world.open()
    assert [(effect.number, effect.key.partition("/")[2], effect.status) for effect in hf.effects("t")] == [
        (1, "one", "done"),
        (2, "two", "not_done"),
        (3, "three", "failed"),
        (4, "four", "started"),
    ]
    assert hf.effects("t")[2].error == "ConnectionError: no network"
    [found] = hf.interrupted()
    assert [effect.name for effect in found.in_doubt] == ["begin"]


@covers("E7")
def test_a_change_of_status_writes_no_checkpoint_and_follows_rules(hf: Holdfast) -> None:
    with hf.run("t", start={"n": 1}) as run:
        run.wait("approve")
    before = list(hf.thread("t").history())
    hf.cancel("t", "not needed")
    assert [info.status for info in hf.threads()] == ["halted"]
    assert list(hf.thread("t").history()) == before
    with hf.run("t") as run:
        run.finish("done")
    with pytest.raises(Conflict):
        hf.cancel("t", "too late")


# -- F. history --------------------------------------------------------------------------------------------------------


@covers("F2")
@on_disk
def test_a_fork_copies_nothing(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as hf:
        hf.thread("t").save({"large": os.urandom(300_000), "list": [os.urandom(300) for _ in range(300)]})
    before = size(tmp_path)
    with opened(kind, tmp_path) as hf:
        fork = hf.thread("t").fork("fork")
        assert latest(fork).state == latest(hf.thread("t")).state
    assert size(tmp_path) - before < 30_000


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def effects_of_options(folder: Path) -> dict[str, Callable[[], object]]:
    """For each option of `open` and `Retention`, something that differs from the default."""

    def saved(**options: Any) -> Holdfast:
        hf = holdfast.open("memory:", **options)
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
        with holdfast.open(folder / "sealed.db", cipher=cipher) as hf:
            hf.thread("t").save({"n": 1})
        with pytest.raises(WrongKey):
            holdfast.open(folder / "sealed.db")
        return True

    def called() -> bool:
        with holdfast.open("memory:", tools=[named]) as hf:
            with hf.run("t", start={}) as run:
                run.finish(run.tool("named"))
            return bool(run.result == "called")

    def elsewhere() -> bool:
        url = folder / "spaces.db"
        with holdfast.open(url) as one, holdfast.open(url, namespace="two") as two:
            one.thread("t").save({})
            return list(two.threads()) == []

    def held(limit: int) -> int:
        with saved(base_bytes=limit) as hf:
            return hf.context.bases.size  # the option saves time and has no other effect

    return {
        "namespace": elsewhere,
        "durability": lambda: syncs(folder / "full", durability="full") > syncs(folder / "off", durability="off") == 0,
        "retention": lambda: saved(retention=Retention(keep_last=1)).thread("t").count() == 2,
        "max_state_bytes": too_large,
        "base_bytes": lambda: held(1 << 20) > held(0) == 0,
        "tools": called,
        "cipher": refused_without_the_key,
        "redact": lambda: "secret" not in latest(saved(redact=lambda _: "x").thread("t")).state["x"],
        "keep_last": lambda: kept(keep_last=1) < kept(keep_last=3),
        "older_than": lambda: kept(older_than=0) < kept(older_than=3_600),
        "keep_newest_completed": lambda: kept(keep_last=1, keep_newest_completed=False) < kept(keep_last=1),
        "keep_labelled": lambda: kept(keep_last=1, keep_labelled=False) < kept(keep_last=1),
    }


def syncs(folder: Path, **options: Any) -> int:
    """How often the disk is synced for a save."""
    with pytest.MonkeyPatch.context() as patched:
        made: list[int] = []
        for name in ("fsync", "fdatasync"):
            patched.setattr(os, name, made.append)
        with holdfast.open(f"dir:{folder}", **options) as hf:
            hf.thread("t").save({"n": 1})
    return len(made)


@holdfast.tool(effect="read")
def named() -> str:
    return "called"


@covers("F5")
def test_every_option_has_an_effect(tmp_path: Path) -> None:
    effects = effects_of_options(tmp_path)
    options = inspect.signature(holdfast.open).parameters.keys() - {"url"}
    assert effects.keys() == options | {field.name for field in msgspec.structs.fields(Retention)}
    for name, has_effect in effects.items():
        assert has_effect(), name
    with pytest.raises(TypeError):
        holdfast.open("memory:", compress=True)  # type: ignore[call-arg] # the point


@covers("A3", "continuum/AtomicFileWriter.with_sync", "cortex/SledBackend.flush")
def test_a_save_waits_for_the_disk_by_default(tmp_path: Path) -> None:
    assert syncs(tmp_path / "default") == syncs(tmp_path / "full", durability="full") > 0


@covers("F11")
def test_an_unknown_thread_is_empty_to_read_and_not_found_to_change(hf: Holdfast) -> None:
    hf.thread("other").save({})
    thread = hf.thread("unknown")
    found = [thread.latest(), thread.latest(fallback=True), thread.head(), thread.find(label="x")]
    assert found == [None] * 4
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


# -- G. integrity and format -------------------------------------------------------------------------------------------


@covers("G10", "continuum/extra fields of the caller")
def test_the_callers_objects_are_not_changed_and_are_loaded_as_saved(hf: Holdfast) -> None:
    state = {"_checksum": "mine", "_version": 7, "messages": [{"extra": {"field": (1, 2)}}], "own": [b"\x00", None]}
    metadata = {"own": ["entry"], "checksum": 1}
    before, thread = repr((state, metadata)), hf.thread("t")
    thread.save(state, metadata=metadata)
    assert repr((state, metadata)) == before
    assert repr((latest(thread).state, latest(thread).metadata)) == before
    with pytest.raises(AlreadyExists):
        thread.save(state, expect=holdfast.NEW)


# -- H. cost -----------------------------------------------------------------------------------------------------------


@contextmanager
def counted_reads() -> Generator[list[int]]:
    """How many bytes this process reads from files in the block."""
    count: list[int] = []
    before = _read_so_far()
    yield count
    count.append(_read_so_far() - before)


def _read_so_far() -> int:
    descriptor = os.open("/proc/self/io", os.O_RDONLY)
    try:
        return int(os.read(descriptor, 200).split()[1])
    finally:
        os.close(descriptor)


@covers("H3")
def test_a_listing_reads_no_state(open_file: OpenHandle, tmp_path: Path) -> None:
    with open_file() as hf:
        for n in range(1, 6):
            hf.thread("t").save({"text": [f"state {n} " * 200, n]}, label=f"label {n}")
    change_blob(tmp_path / "agent.db", "checkpoint", "cells", "cells IS NOT NULL", flip)
    with open_file() as hf:
        thread = hf.thread("t")
        assert seqs(thread) == [5, 4, 3, 2, 1]
        assert [info.seq for info in hf.threads()] == [5]
        assert thread.count() == 5
        assert seqs(thread, label="label 3") == [3]
        assert len(thread.prune(Retention(keep_last=2, keep_labelled=False), dry_run=True).removed) == 3
        with pytest.raises(holdfast.Damaged):
            thread.latest()


def read_with(url: str, others: int) -> int:
    """How many bytes are read to load a thread, and a checkpoint by its id, in a store with other threads."""
    with holdfast.open(url, durability="off") as hf:
        first = hf.thread("t").save({"n": 1})
        hf.thread("t").save({"n": 2})
        for n in range(others):
            hf.thread(f"other {n}").save({"text": Random(n).randbytes(3_000).hex()})
    with holdfast.open(url, durability="off") as hf, counted_reads() as count:
        assert latest(hf.thread("t")).state == {"n": 2}
        assert hf.thread("t").load(first.id).seq == hf.thread("t").load(first.id[-8:]).seq == 1
    return count[0]


@covers("H4", "H5")
@on_disk
def test_other_threads_cost_nothing(kind: str, tmp_path: Path) -> None:
    few, many = (read_with(address(kind, tmp_path, f"{others}"), others) for others in (2, 150))
    assert many < 2 * few + 40_000  # the other threads have 900,000 bytes


@covers("H6")
@on_disk
def test_a_save_does_not_read_the_state_before_it(kind: str, tmp_path: Path) -> None:
    state: dict[str, Any] = {"messages": [Random(n).randbytes(1_000).hex() for n in range(1_000)]}
    with opened(kind, tmp_path) as hf:
        thread = hf.thread("t")
        thread.save(state)
        with counted_reads() as count:
            for n in range(10):
                state["messages"].append(f"message {n}")
                thread.save(state)
        assert count[0] < 400_000  # the states have ten times 2,000,000 bytes
