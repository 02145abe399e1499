"""Opening, listing, closing, sharing a handle, and what a handle holds."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Closed, Holdfast, InvalidArgument, Retention, StoreError
from tests.cases import for_each
from tests.conftest import OpenHandle
from tests.covers import covers
from tests.selection import every_store
from tests.waiting import DEADLINE, until


class TestOpen:
    @covers("continuum/CheckpointWriter.new", "continuum/test_checkpoint_writer_creation")
    @covers("smooth/SqliteCheckpointStore.open")
    def test_ways_to_name_a_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for url in ("a.db", tmp_path / "b.db", "sqlite:///c.db", f"sqlite:///{tmp_path}/d.db"):
            with holdfast.open(url) as hf:
                hf.thread("t").save({"n": 1})
        assert {"a.db", "b.db", "c.db", "d.db"} <= {path.name for path in tmp_path.iterdir()}

    @covers("C10", "ares/CheckpointManager.default_dir")
    def test_without_a_name_the_environment_or_the_data_folder_decides(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "env.db"))
        with holdfast.open() as hf:
            hf.thread("t").save({})
        assert (tmp_path / "env.db").exists()
        monkeypatch.delenv("HOLDFAST_STORE")
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        with holdfast.open() as hf:
            hf.thread("t").save({})
        found = list(tmp_path.rglob("holdfast.db"))
        assert len(found) == 1
        assert stat.S_IMODE(found[0].stat().st_mode) == 0o600
        assert stat.S_IMODE(found[0].parent.stat().st_mode) == 0o700

    @covers("continuum/ErrorCategory.Configuration")
    @for_each(
        "url", ["", ":memory:", "redis://x", "sqlite://x", "sqlite:x", "sqlite:///", "http://a/b", 5, b"a.db", "a\0b"]
    )
    def test_what_names_no_store_is_refused(self, url: Any) -> None:
        with pytest.raises(InvalidArgument):
            holdfast.open(url)

    @covers("continuum/ErrorCategory.Configuration")
    @pytest.mark.parametrize(
        "options",
        [
            {"namespace": ""},
            {"namespace": 5},
            {"durability": "maybe"},
            {"retention": 5},
            {"max_state_bytes": -1},
            {"max_state_bytes": 1.5},
            {"base_bytes": "1"},
        ],
        ids=str,
    )
    def test_bad_options_are_refused(self, tmp_path: Path, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidArgument):
            holdfast.open(tmp_path / "a.db", **options)

    @covers("A18", "smooth/SqliteCheckpointStore.open.parents", "cortex/CheckpointError.Storage")
    def test_a_folder_that_does_not_exist_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="nowhere"):
            holdfast.open(tmp_path / "nowhere" / "a.db")
        assert not (tmp_path / "nowhere").exists()

    @covers("C9")
    def test_namespaces_do_not_see_each_other(self, open_file: OpenHandle) -> None:
        one, two = open_file(namespace="one"), open_file(namespace="two")
        saved = one.thread("t").save({"secret": "x" * 20_000})
        assert two.thread("t").latest() is None
        two.thread("t").save({"other": 1})
        with pytest.raises(holdfast.NotFound):
            two.thread("t").load(saved.id)
        two.thread("t").drop()
        two.optimize()
        assert one.thread("t").load(saved.id).state == {"secret": "x" * 20_000}
        assert list(two.threads()) == []


class TestClose:
    def test_a_closed_handle_says_so(self, url: str) -> None:
        hf = holdfast.open(url)
        thread = hf.thread("t")
        thread.save({"n": 1})
        hf.close()
        hf.close()
        calls: list[Callable[[], Any]] = [
            lambda: thread.save({"n": 2}),
            thread.latest,
            thread.head,
            thread.count,
            thread.history,
            thread.drop,
            lambda: thread.load("@1"),
            lambda: thread.rewind("@1"),
            lambda: thread.fork("f"),
            lambda: hf.thread("t"),
            hf.threads,
            hf.verify,
            hf.optimize,
            hf.maintain,
            hf.__enter__,
        ]
        for call in calls:
            with pytest.raises(Closed):
                call()

    @covers("cortex/SledBackend", "cortex/session test_sled_backend_basic")
    def test_everything_is_there_after_reopening(self, open_file: OpenHandle) -> None:
        first = open_file()
        state = {"messages": [{"n": n, "text": "t" * 100} for n in range(500)]}
        saved = first.thread("t").save(state, label="x")
        first.close()
        second = open_file()
        assert second.thread("t").load("@x").state == state
        assert second.thread("t").save(state).parent == saved.id


class TestThreads:
    @covers("F9", "G1", "ares/checkpoint_key", "continuum/SessionMeta", "cortex/CheckpointStore.list_threads")
    @covers("cortex/CheckpointManager.list_threads", "cortex/test_list_threads", "cortex/MemoryBackend.list_sessions")
    @covers("cortex/MemoryBackend.list_session_ids", "cortex/SessionManager.list_sessions")
    @covers("cortex/session test_list_sessions", "cortex/ExecutionStore", "cortex/DurableStats")
    def test_they_are_listed_by_name_in_pages(self, hf: Holdfast) -> None:
        for n in range(450):
            hf.thread(f"t{n:03}").save({"n": n}, status="completed" if n % 100 == 0 else "running", agent="a")
        assert [info.name for info in hf.threads()] == [f"t{n:03}" for n in range(450)]
        page = list(hf.threads(limit=50))
        assert len(page) == 50
        assert next(hf.threads(after=page[-1].name)).name == "t050"
        assert [info.name for info in hf.threads(prefix="t44")] == [f"t44{n}" for n in range(10)]
        assert [info.name for info in hf.threads(status="completed", limit=3)] == ["t000", "t100", "t200"]
        assert list(hf.threads(limit=0)) == []
        info = page[3]
        assert (info.step, info.seq, info.count, info.status, info.agent) == (1, 1, 1, "running", "a")
        assert info.size > 0
        for bad in ({"limit": -1}, {"status": "odd"}, {"prefix": 5}, {"after": 5}):
            with pytest.raises(InvalidArgument):
                hf.threads(**bad)


@every_store("threads use one store at once")
class TestSharing:
    @covers("D5", "smooth/CheckpointStore.sync", "cortex/MemoryCheckpointStore", "smooth/python.one_slot")
    def test_many_threads_write_through_one_handle(self, hf: Holdfast) -> None:
        failures: list[BaseException] = []

        def work(name: str) -> None:
            try:
                thread = hf.thread(name)
                messages: list[str] = []
                for n in range(15):
                    messages.append(f"{name} {n}")
                    thread.save({"messages": messages})
            except BaseException as failure:
                failures.append(failure)
                raise

        workers = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(32)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not failures
        for info in hf.threads():
            latest = hf.thread(info.name).latest()
            assert latest is not None
            assert latest.state["messages"] == [f"{info.name} {n}" for n in range(15)]
        assert hf.verify().ok

    def test_a_forked_child_and_its_parent_both_go_on(self, open_file: OpenHandle) -> None:
        hf = open_file()
        thread = hf.thread("parent")
        thread.save({"n": 1})
        child = os.fork()
        if child == 0:
            code = 1
            try:
                mine = hf.thread("child")
                mine.save({"pid": "child"})
                latest = hf.thread("parent").latest()
                code = 0 if latest is not None and latest.state["n"] >= 1 else 2
            finally:
                os._exit(code)
        thread.save({"n": 2})
        assert os.waitpid(child, 0)[1] == 0
        latest = hf.thread("child").latest()
        assert latest is not None
        assert latest.state == {"pid": "child"}
        assert thread.save({"n": 3}).seq == 3
        assert hf.verify().ok


class TestBases:
    def test_they_are_bounded_over_all_threads(self, url: str) -> None:
        with holdfast.open(url, durability="off", base_bytes=300_000) as hf:
            for n in range(20):
                hf.thread(f"t{n}").save({"messages": ["x" * 1_000 for _ in range(50)]})
            assert 0 < hf.context.bases.size <= 300_000
            state = {"messages": ["y" * 1_000 + str(n) for n in range(50)]}
            thread = hf.thread("t0")
            thread.save(state)
            state["messages"].append("more")
            thread.save(state)
            latest = hf.thread("t0").latest()
            assert latest is not None
            assert latest.state == state

    def test_without_room_for_any_base_saving_still_works(self, url: str) -> None:
        with holdfast.open(url, durability="off", base_bytes=0) as hf:
            thread = hf.thread("t")
            state: dict[str, Any] = {"messages": []}
            for n in range(5):
                state["messages"].append({"text": "z" * 500, "n": n})
                thread.save(state)
            latest = thread.latest()
            assert latest is not None
            assert latest.state == state
            assert hf.context.bases.size == 0


class TestRetention:
    @covers("F6", "smooth/CheckpointStore.prune", "continuum/CheckpointWriter.with_max_backups", "ares/cleanup_expired")
    @covers("cortex/CheckpointConfig", "cortex/CheckpointConfig.max_checkpoints_per_thread")
    @covers("cortex/CheckpointManager.with_config", "cortex/test_max_checkpoints_cleanup")
    def test_a_handle_opened_with_one_applies_it(self, url: str) -> None:
        with holdfast.open(url, durability="off", retention=Retention(keep_last=3)) as hf:
            thread = hf.thread("t")
            for n in range(10):
                thread.save({"n": n}, label="first" if n == 0 else None)
            hf.maintain()
            assert [c.seq for c in thread.history()] == [10, 9, 8, 1]

    @covers("F6")
    def test_it_is_applied_soon_without_being_asked(self, url: str) -> None:
        with holdfast.open(url, durability="off", retention=Retention(keep_last=1)) as hf:
            thread = hf.thread("t")
            for n in range(4):
                thread.save({"n": n})
            until(lambda: thread.count() == 1)
            assert [c.seq for c in thread.history()] == [4]

    def test_closing_finishes_what_is_due(self, open_file: OpenHandle) -> None:
        hf = open_file(retention=Retention(keep_last=2))
        for n in range(6):
            hf.thread("t").save({"n": n})
        hf.close()
        assert open_file().thread("t").count() == 2

    def test_optimize_applies_what_is_due_and_counts_it(self, hf: Holdfast, open_file: OpenHandle) -> None:
        with open_file(retention=Retention(keep_last=2)) as kept:
            kept._background._quiet_seconds = 3600.0  # only optimize prunes
            for n in range(6):
                kept.thread("t").save({"n": n})
            assert kept.optimize().pruned == 4
            assert kept.thread("t").count() == 2
            assert kept.optimize().pruned == 0
        hf.thread("t").save({})
        assert hf.optimize().pruned == 0

    @covers("F4", "ares/is_expired.without_ttl", "continuum/CheckpointWriter.with_max_backups")
    @covers("cortex/CheckpointConfig.default")
    def test_nothing_is_deleted_by_default(self, hf: Holdfast) -> None:
        for n in range(30):
            hf.thread("t").save({"n": n})
        hf.maintain()
        hf.optimize()
        assert hf.thread("t").count() == 30

    @covers("A14")
    def test_a_failure_in_the_background_is_raised_by_the_next_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        hf = holdfast.open("memory:", retention=Retention(keep_last=1))
        failed = threading.Event()

        def fail(*_: Any) -> None:
            failed.set()
            raise StoreError("no")

        for n in range(3):
            hf.thread("t").save({"n": n})
        monkeypatch.setattr(hf.context.store, "delete", fail)
        hf.thread("t").save({"n": 3})
        assert failed.wait(DEADLINE)

        def maintained_without_failing() -> bool:
            hf.maintain()
            return False

        with pytest.raises(StoreError, match="no"):
            until(maintained_without_failing)
        monkeypatch.undo()
        hf.close()


class TestRetentionOfMany:
    def test_all_that_is_due_is_done_at_once(self, url: str) -> None:
        with holdfast.open(url, durability="off", retention=Retention(keep_last=1)) as hf:
            for n in range(20):
                for _ in range(3):
                    hf.thread(f"t{n}").save({"n": n}, expect=holdfast.ANY)
            until(lambda: all(info.count == 1 for info in hf.threads()))

    def test_a_thread_that_is_gone_by_then_is_no_failure(self, url: str) -> None:
        hf = holdfast.open(url, durability="off", retention=Retention(keep_last=1))
        hf.thread("t").save({})
        hf.thread("t").drop()
        hf.close()


def test_locks_held_at_a_fork_do_not_hang_the_child(open_file: OpenHandle) -> None:
    hf = open_file(retention=Retention(keep_last=5))
    thread = hf.thread("t")
    thread.save({"n": 1})
    with hf.context.bases._lock, hf._background._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(int(DEADLINE))
            code = 1
            try:
                code = 0 if hf.thread("child").save({"n": 1}).seq == 1 else 2
            finally:
                os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
