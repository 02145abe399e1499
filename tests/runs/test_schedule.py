"""Delayed and scheduled runs: they start at their time, once, whatever was missed, and on any worker."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Conflict, Holdfast, InvalidArgument, NotFound, Run
from holdfast.errors import NotInstalled
from tests.runs.conftest import World
from tests.selection import every_store

Pass = Callable[[float], None]


@pytest.fixture
def later(world: World, monkeypatch: pytest.MonkeyPatch) -> Pass:
    """Let time pass, for the store's clock and for the wall clock."""
    passed = 0.0
    real = time.time_ns

    def let_pass(seconds: float) -> None:
        nonlocal passed
        passed += seconds
        world.pass_time(seconds)

    monkeypatch.setattr(time, "time_ns", lambda: real() + round(passed * 1e9))
    monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9)
    return let_pass


def now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


def work(hf: Holdfast) -> list[tuple[str, Any]]:
    """The runs that a worker of one handler runs now."""
    seen: list[tuple[str, Any]] = []

    def handler(run: Run) -> None:
        assert not run.resumed
        seen.append((run.thread, run.state))

    hf.worker({"h": handler}).run(until_idle=True)
    return seen


# -- once ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_limited", [False, True])
def test_the_first_attempt_of_a_delayed_run_is_1(world: World, later: Pass, is_limited: bool) -> None:
    attempts: list[int] = []

    @holdfast.handler(concurrency=1)
    def handler(run: Run) -> None:
        attempts.append(run.attempt)
        if is_limited and len(attempts) == 1:  # another run is due, and its handler is at its limit
            world.open().worker({"h": handler}).run(until_idle=True)
        raise ValueError

    hf = world.open()
    for name in ("t", "u")[: 1 + is_limited]:
        hf.submit("h", name, start={}, at=now() + timedelta(hours=1))
    later(3601)
    hf.worker({"h": handler}).run(until_idle=True)
    assert set(attempts) == {1}
    for thread, row in hf.context.store.runs(statuses=("queued",), after=(0, 0), limit=9):
        assert row.attempt == 1, thread
        assert row.wake_at - world.clock().now <= 1000  # the first pause is the shortest


@every_store("the run is found by its time")
def test_a_delayed_run_starts_at_its_time(world: World, later: Pass) -> None:
    hf = world.open()
    at = now() + timedelta(hours=1)
    for _ in range(2):
        hf.submit("h", "t", start={"n": 1}, at=at)
    info = hf.run_info("t")
    assert info is not None
    assert (info.status, info.reason) == ("waiting", f"starts at {at.isoformat(sep=' ', timespec='seconds')}")
    assert work(hf) == []
    assert list(hf.waiting()) == []
    assert list(hf.stuck(older_than=0)) == []
    later(3601)
    assert work(hf) == [("t", {"n": 1})]
    assert work(hf) == []


def test_a_time_that_has_passed_means_now(world: World) -> None:
    hf = world.open()
    hf.submit("h", "t", start={}, at=now() - timedelta(days=1))
    assert [name for name, _ in work(hf)] == ["t"]


def test_a_delayed_run_outlives_a_restart_of_the_machine(world: World, later: Pass) -> None:
    hf = world.open()
    hf.submit("h", "t", start={}, at=now() + timedelta(hours=1))
    world.boot = "boot-2"
    assert work(hf) == []
    later(3601)
    assert [name for name, _ in work(hf)] == ["t"]


def test_a_delayed_run_can_be_cancelled(world: World, later: Pass) -> None:
    hf = world.open()
    hf.submit("h", "t", start={}, at=now() + timedelta(hours=1))
    hf.cancel("t", "not needed")
    later(3601)
    assert work(hf) == []


@pytest.mark.parametrize("at", [datetime(2030, 1, 1), 5, "tomorrow"])  # noqa: DTZ001 - that it is refused
def test_a_time_without_a_zone_is_refused(world: World, at: Any) -> None:
    with pytest.raises(InvalidArgument, match="at must be a datetime with a time zone"):
        world.open().submit("h", "t", start={}, at=at)


# -- again and again -----------------------------------------------------------------------------------------------


@every_store("the schedule is a run")
def test_a_schedule_starts_a_run_each_time(world: World, later: Pass) -> None:
    hf = world.open()
    started = now()
    for _ in range(2):
        hf.schedule("report", "h", start={"n": 1}, every=600)
    assert work(hf) == []
    found: list[str] = []
    for _ in range(3):
        later(600)
        found += [name for name, _ in work(hf)]
    times = [datetime.fromisoformat(name.removeprefix("report/")) for name in found]
    assert len(times) == 3
    assert all(abs((at - started).total_seconds() - 600 * n) <= 1 for n, at in enumerate(times, 1))
    [listed] = hf.schedules()
    assert (listed.name, listed.handler, listed.every, listed.last) == ("report", "h", 600, times[-1])
    assert listed.next == times[-1] + timedelta(seconds=600)


def test_what_was_missed_is_run_once(world: World, later: Pass) -> None:
    hf = world.open()
    hf.schedule("report", "h", start={}, every=60)
    assert work(hf) == []
    later(3600 * 24)
    assert len(work(hf)) == 1
    later(60)
    assert len(work(hf)) == 1


def test_workers_whose_wall_clocks_are_slow_start_nothing_twice(
    world: World, later: Pass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule wakes by the store's clock. The wall clocks of the workers that resume it may be behind."""
    hf = world.open()
    hf.schedule("report", "h", start={}, every=600)
    [planned] = hf.schedules()
    on_time = time.time_ns
    later(600)
    found: list[str] = []
    for seconds_behind in (5, 12, 0, 0):
        monkeypatch.setattr(time, "time_ns", lambda behind=seconds_behind: on_time() - behind * 1_000_000_000)
        found += [name for name, _ in work(hf)]
        later(6)
    assert found == [f"report/{planned.next.isoformat(timespec='seconds')}"]


def test_a_cron_expression_in_a_time_zone(world: World, later: Pass) -> None:
    hf = world.open()
    hf.schedule("morning", "h", start={}, cron="30 9 * * *", timezone="Europe/Berlin")
    for _ in range(3):
        work(hf)
        [listed] = hf.schedules()
        later((listed.next - now()).total_seconds() + 1)
        [(name, _)] = work(hf)
        assert "T09:30:00+0" in name


def test_two_workers_start_each_run_once(world: World, later: Pass) -> None:
    first, second = world.open(), world.open()
    first.schedule("report", "h", start={}, every=60)
    work(first)
    later(61)
    assert len(work(first) + work(second)) == 1


def test_a_worker_of_certain_versions_keeps_schedules_too(world: World, later: Pass) -> None:
    hf = world.open()
    hf.schedule("report", "h", start={}, every=60, version="2")
    seen: list[str] = []
    worker = hf.worker({"h": lambda run: seen.append(run.thread)}, versions=["2"])
    worker.run(until_idle=True)
    later(61)
    worker.run(until_idle=True)
    assert len(seen) == 1


def test_another_schedule_under_the_same_name_is_refused(world: World) -> None:
    hf = world.open()
    hf.schedule("report", "h", start={}, every=60)
    with pytest.raises(Conflict, match=r"unschedule"):
        hf.schedule("report", "h", start={}, every=61)
    hf.unschedule("report")
    assert list(hf.schedules()) == []
    hf.schedule("report", "h", start={}, every=61)
    with pytest.raises(NotFound, match="no schedule 'other'"):
        hf.unschedule("other")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either every= or cron="),
        ({"every": 60, "cron": "* * * * *"}, "either every= or cron="),
        ({"every": 0}, "every must be"),
        ({"cron": "61 * * * *"}, "cron expression"),
        ({"cron": "* * * * *", "timezone": "Moon/Base"}, "timezone"),
    ],
)
def test_wrong_schedules_are_refused(world: World, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        world.open().schedule("report", "h", start={}, **options)


def test_the_extra_for_cron_is_named_where_it_is_not_installed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    hf = world.open()
    with pytest.raises(NotInstalled, match=r"nothing was scheduled.*holdfast\[cron\]"):
        hf.schedule("report", "h", start={}, cron="* * * * *")
    assert list(hf.schedules()) == []
