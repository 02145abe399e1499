"""Hints on runs that have not ended: workers find their work without reading all threads, and miss none of it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from holdfast.errors import Conflict, StoreError
from holdfast.runs.handlers import Handlers
from holdfast.runs.work_queue import WorkQueue
from holdfast.stores import rules
from holdfast.stores.contract_runs import ClaimLimit, Clock, RunRow
from holdfast.stores.log import objects, run_hints
from holdfast.stores.log.bucket_store import BucketStore
from holdfast.stores.log.device import OPEN, READY
from holdfast.stores.log.run_hints import OPEN_STATUSES
from holdfast.testing.contract.build import held, run_row, saved
from holdfast.testing.contract.queues import claimed, queued
from tests.stores.bucket.test_memory import opened

LIMIT = ClaimLimit("h")
START = (-(1 << 62), 0, 0)


def hints(store: BucketStore) -> list[str]:
    return [each.key for kind in (OPEN, READY) for each in store.objects.list(kind)]


def requests(store: BucketStore, work: Callable[[], object]) -> int:
    before = store.objects.requests.total()
    work()
    return store.objects.requests.total() - before


def poll(store: BucketStore) -> list[str]:
    """A look of a worker for work."""
    handlers = Handlers({"h": lambda run: None}, None, (), {})
    return [name for name, _ in WorkQueue(store, handlers)]


def waiting(store: BucketStore, name: str, at: int, **changes: Any) -> RunRow:
    thread = saved(store, name, "x").number
    fields = {"status": "waiting", "clock": store.clock().id, "wake_at": at, "wake_wall": at * 1000, "handler": "h"}
    return store.claim(None, run_row(thread, **(fields | changes))).run


def ended(store: BucketStore, row: RunRow) -> RunRow:
    return store.claim(row, replace(row, status="completed", fence=row.fence + 1, wake_at=0, wake_wall=0)).run


def test_the_requests_of_a_poll_do_not_grow_with_idle_threads(tmp_path: Path) -> None:
    store = opened(tmp_path)
    later = store.clock().now + 3_600_000
    counts: list[int] = []
    for size in (1, 10, 30):
        for number in range(size):
            saved(store, f"idle {size} {number}", "x")
            waiting(store, f"asleep {size} {number}", later)
            ended(store, waiting(store, f"ended {size} {number}", later))
            thread = saved(store, f"held {size} {number}", "x").number
            store.claim(None, held(store, thread, handler="h"))
        for worker in (store, opened(tmp_path)):
            poll(worker)
            counts.append(requests(worker, lambda worker=worker: poll(worker)))  # type: ignore[misc]
    assert len(set(counts)) == 1, counts
    assert counts[0] <= 6


def test_a_worker_finds_due_and_queued_runs_and_those_of_dead_workers(tmp_path: Path) -> None:
    store = opened(tmp_path)
    now = store.clock().now
    waiting(store, "due", now - 10_000)
    queued(store, "queued", handler="h")
    thread = saved(store, "dead", "x").number
    store.claim(None, held(store, thread, handler="h", lease_until=now - 10_000))
    assert sorted(poll(opened(tmp_path))) == ["dead", "due", "queued"]


def test_limited_claims_count_the_held_runs_without_reading_idle_threads(tmp_path: Path) -> None:
    store = opened(tmp_path)
    rows = [queued(store, f"{number}", handler="h") for number in range(3)]
    claimed(store, rows[0], ClaimLimit("h", held=3))
    before = requests(store, lambda: claimed(store, rows[1], ClaimLimit("h", held=3)))
    for number in range(20):
        saved(store, f"idle {number}", "x")
    assert requests(store, lambda: claimed(store, rows[2], ClaimLimit("h", held=3))) <= before + 2


def test_due_runs_are_found_behind_many_hints_for_other_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server lists a limited number of objects at a time."""
    monkeypatch.setattr(objects, "PAGE", 3)
    monkeypatch.setattr(run_hints, "_LEAST", 4)
    store = opened(tmp_path)
    for number in range(20):
        waiting(store, f"other {number}", 5, handler="other")
        queued(store, f"queued {number:02}", handler="h", updated_at=number)
    waiting(store, "mine", 6)
    found = poll(store)
    assert found.count("mine") == 1
    assert [name for name in found if name != "mine"] == [f"queued {number:02}" for number in range(20)]


def test_hints_are_removed_with_their_runs(tmp_path: Path) -> None:
    store = opened(tmp_path)
    ended(store, waiting(store, "a", 5))
    ended(store, claimed(store, queued(store, "b", handler="h"), LIMIT))
    assert hints(store) == []


def test_a_claim_removes_the_hint_of_the_queue(tmp_path: Path) -> None:
    store, other = opened(tmp_path), opened(tmp_path)
    row = queued(store, "a", handler="h")
    assert len(other.queue(handlers=["h"], after=START, limit=9)) == 1
    claimed(other, row, LIMIT)
    assert [key for key in hints(store) if key.startswith(READY)] == []
    assert store.queue(handlers=["h"], after=START, limit=9) == []


def test_a_hint_of_a_writer_that_has_not_appended_yet_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process reads the hint, finds that the log does not need it, and must not remove it."""
    store: Any = opened(tmp_path)
    other = opened(tmp_path)
    row = waiting(store, "a", store.clock().now + 3_600_000)
    append, seen = store._locks.append, list[Any]()

    def late(*args: Any, **options: Any) -> None:
        seen.append(other.due(limit=9))
        append(*args, **options)

    monkeypatch.setattr(store._locks, "append", late)
    due = store.claim(row, replace(row, fence=2, wake_at=5, wake_wall=5000)).run
    assert seen == [[]]
    assert other.due(limit=9) == [("a", due)]


def test_a_hint_is_not_old_because_the_clock_of_a_machine_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process whose clock is two days ahead reads the hint before the log has the run."""
    store: Any = opened(tmp_path)
    ahead = opened(tmp_path, wall=lambda: time.time_ns() // 1000 + 2 * 86_400_000_000)
    thread = saved(store, "a", "x").number
    append = store._locks.append

    def late(*args: Any, **options: Any) -> None:
        assert poll(ahead) == []
        append(*args, **options)

    monkeypatch.setattr(store._locks, "append", late)
    store.claim(None, run_row(thread, status="queued", handler="h"))
    assert poll(opened(tmp_path)) == ["a"]


def test_a_hint_is_not_old_because_its_reader_was_suspended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After two days, the process goes on with what it has read of the log before."""
    store: Any = opened(tmp_path)
    now = [time.time_ns() // 1_000_000]
    other: Any = opened(tmp_path, clock=lambda: Clock("server", now[0]))
    thread = saved(store, "a", "x").number
    append, under = store._locks.append, other._space.under

    def suspended(key: str) -> object:
        found = under(key)
        now[0] += 2 * 86_400_000
        return found

    def late(*args: Any, **options: Any) -> None:
        assert poll(other) == []
        append(*args, **options)

    monkeypatch.setattr(other._space, "under", suspended)
    monkeypatch.setattr(store._locks, "append", late)
    store.claim(None, run_row(thread, status="queued", handler="h"))
    assert poll(opened(tmp_path)) == ["a"]


def test_a_hint_that_is_moved_while_the_run_becomes_due_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer has written its own hint, with a number that the other process has not read."""
    store = opened(tmp_path)
    other: Any = opened(tmp_path)
    now = store.clock().now
    row = waiting(store, "a", now - 5000)
    row = store.claim(row, replace(row, fence=2, wake_at=now + 10**7, wake_wall=(now + 10**7) * 1000)).run
    due: list[RunRow] = []
    delete = other.objects.delete

    def late(keys: Any) -> None:
        if not due:
            due.append(store.claim(row, replace(row, fence=3, wake_at=7, wake_wall=7000)).run)
        delete(keys)

    monkeypatch.setattr(other.objects, "delete", late)
    other._hints._put(f"{OPEN}/{5:016d}/a/1")
    assert other.due(limit=9) == []
    assert other.due(limit=9) == store.due(limit=9) == [("a", due[0])]


def test_lost_hints_are_written_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    queued(store, "b", handler="h")
    waiting(store, "a", 5)
    ended(store, waiting(store, "c", 5))
    store.objects.delete(hints(store))
    assert poll(opened(tmp_path)) == []
    store.reclaim()
    assert sorted(poll(opened(tmp_path))) == ["a", "b"]


def test_a_claim_that_lost_a_race_leaves_no_wrong_hint(tmp_path: Path) -> None:
    store, other = opened(tmp_path), opened(tmp_path)
    row = queued(store, "a", handler="h")
    other.run(row.thread)
    claimed(store, row, LIMIT)
    with pytest.raises(Conflict):
        claimed(other, row, LIMIT)
    assert poll(other) == []


def test_a_submitted_run_is_found_and_runs(tmp_path: Path) -> None:
    hf = holdfast.open(opened(tmp_path))
    hf.submit("h", "a", start=[1])
    with holdfast.open(opened(tmp_path)) as other:
        other.worker({"h": lambda run: None}).run(until_idle=True)
    assert [info.status for info in hf.threads()] == ["completed"]
    hf.close()


def delayed(request: Callable[..., Any], choose: random.Random) -> Callable[..., Any]:
    def late(*args: Any) -> Any:
        time.sleep(choose.random() * 0.004)
        return request(*args)

    return late


def test_handles_that_write_and_poll_at_once_lose_no_run(tmp_path: Path) -> None:
    store = opened(tmp_path)
    now = store.clock().now
    threads = [waiting(store, f"{number}", now + 10**6).thread for number in range(3)]
    wrong: list[BaseException] = []

    def change(seed: int) -> None:
        choose, own = random.Random(seed), opened(tmp_path)
        for name in ("put", "create", "delete", "get"):  # as over a network
            setattr(own.objects, name, delayed(getattr(own.objects, name), choose))
        try:
            for _ in range(40):
                thread = choose.choice(threads)
                row = own.run(thread)
                assert row is not None
                status = choose.choice(["waiting", "waiting", "queued", "running", "completed"])
                at = choose.choice([0, now - 5000, now + 10**6]) if status in ("waiting", "queued") else 0
                new = replace(row, status=status, fence=row.fence + 1, wake_at=at, wake_wall=at * 1000)
                with suppress(Conflict):
                    own.claim(row, new)
                poll(own)
        except BaseException as error:  # noqa: BLE001 - asserted below
            wrong.append(error)

    workers = [threading.Thread(target=change, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []
    reader = opened(tmp_path)
    rows = [row for thread in threads if (row := reader.run(thread)) is not None]
    listed = reader.runs(statuses=tuple(OPEN_STATUSES), after=(0, 0), limit=9)
    assert {row.thread for _, row in listed} == {row.thread for row in rows if row.status in OPEN_STATUSES}
    ready = {row.thread for row in rows if rules.is_ready(row)}
    assert {row.thread for _, row in reader.queue(handlers=["h"], after=START, limit=9)} == ready
    late = {row.thread for row in rows if rules.is_timed(row) and row.wake_at < now}
    assert {row.thread for _, row in reader.due(limit=9)} == late


def test_runs_are_found_while_the_time_of_the_server_is_not_known(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.claim(None, run_row(saved(store, "a", "x").number, status="queued", handler="h"))

    def unknown() -> Clock:
        raise StoreError("the bucket cannot be written")

    other = opened(tmp_path, clock=unknown)
    assert [name for name, _ in other.queue(handlers=["h"], after=(-(1 << 62), 0, 0), limit=9)] == ["a"]
    assert [name for name, _ in other.runs(statuses={"queued"}, after=(0, 0), limit=9)] == ["a"]
