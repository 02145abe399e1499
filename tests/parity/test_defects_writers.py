"""Defects D1 to D7, which Holdfast must not have: several at once."""

from __future__ import annotations

import asyncio
import fcntl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import holdfast
from holdfast import Conflict, Holdfast, LeaseHeld, Unsupported
from tests.crash.nursery import Nursery
from tests.parity.defects_scene import (
    child_of,
    database,
    everywhere,
    fill,
    latest,
    on_disk,
    opened,
    place,
    seqs,
    state_at,
    wait_for_line,
)

TIMES = 15


@pytest.mark.parametrize("url", ["sqlite", "directory", "postgres"], indirect=True)
def test_d1_of_two_processes_none_overwrites_the_other(url: str, nursery: Nursery, tmp_path: Path) -> None:
    with opened(url) as hf:
        hf.thread("t").save({"count": 0})
    children = [child_of(nursery, tmp_path, "count_up", url=url, times=TIMES) for _ in range(2)]
    for child in children:
        child.wait_for_end()
        assert child.failure is None
    with opened(url) as hf:
        assert latest(hf.thread("t")).state == {"count": 2 * TIMES}
        listed = list(hf.thread("t").history())
        assert [checkpoint.parent for checkpoint in listed[:-1]] == [checkpoint.id for checkpoint in listed[1:]]


@everywhere
def test_d1_the_second_writer_is_told(hf: Holdfast) -> None:
    one, two = hf.thread("t"), hf.thread("t")
    one.save({"by": "one"})
    assert latest(two).state == {"by": "one"}
    one.save({"by": "one again"})
    with pytest.raises(Conflict):
        two.save({"by": "two"})
    assert latest(one).state == {"by": "one again"}
    assert one.count() == 2


@everywhere
def test_d2_of_many_that_build_on_one_checkpoint_one_is_stored(hf: Holdfast) -> None:
    base = hf.thread("t").save({"n": 0})
    together = threading.Barrier(8)

    def save(n: int) -> bool:
        thread = hf.thread("t")
        together.wait(10)
        try:
            thread.save({"n": n}, expect=base)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        stored = list(pool.map(save, range(1, 9)))
    assert stored.count(True) == 1
    found = latest(hf.thread("t"))
    assert found.state == {"n": stored.index(True) + 1}
    assert found.parent == base.id
    assert hf.thread("t").count() == 2


@on_disk
def test_d3_a_run_of_a_living_process_is_not_taken_for_a_crash(url: str, nursery: Nursery, tmp_path: Path) -> None:
    child = child_of(nursery, tmp_path, "hold_runs", url=url, threads=["t"])
    wait_for_line(child, "holding")
    with opened(url) as hf:
        assert list(hf.interrupted()) == []
        with pytest.raises(LeaseHeld):
            hf.run("t").__enter__()
        with pytest.raises(LeaseHeld):
            hf.thread("t").save({"n": 9})
        child.kill()
        assert [found.thread for found in hf.interrupted()] == ["t"]
        with hf.run("t") as run:
            assert run.state == {"n": 1}
            assert run.attempt == 1 + 1
            run.finish()
        assert list(hf.interrupted()) == []


@on_disk
def test_d4_every_run_that_was_cut_off_is_told(url: str, nursery: Nursery, tmp_path: Path) -> None:
    dead = child_of(nursery, tmp_path, "hold_runs", url=url, threads=["a", "b", "c"])
    living = child_of(nursery, tmp_path, "hold_runs", url=url, threads=["d"])
    wait_for_line(dead, "holding")
    wait_for_line(living, "holding")
    dead.kill()
    with opened(url) as hf:
        with hf.run("e", start={}) as run:
            run.finish()
        assert sorted(found.thread for found in hf.interrupted()) == ["a", "b", "c"]
        assert {found.status for found in hf.stuck(older_than=0)} == {"running"}
    living.kill()


@everywhere
def test_d5_an_error_in_the_middle_of_a_save_spoils_nothing(url: str) -> None:
    def redact(text: str) -> str:
        if text == "poison":
            raise RuntimeError("user code that fails")
        return text

    with opened(url, redact=redact) as hf:

        def save(n: int) -> int:
            thread = hf.thread(f"t{n}")
            for step in range(1, 6):
                with pytest.raises(Unsupported):
                    thread.save({"n": n, "text": "poison"})
                thread.save({"n": n, "step": step})
            return thread.count()

        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(save, range(6))) == [5] * 6
        for n in range(6):
            assert latest(hf.thread(f"t{n}")).state == {"n": n, "step": 5}


@on_disk
def test_d6_a_save_that_waits_for_its_turn_leaves_the_event_loop_free(url: str) -> None:
    with opened(url) as hf:
        hf.thread("t").save({"n": 1})
        gate = Path(f"{url}-gate") if database(url) else place(url) / "default" / "lock-gate"

        async def work() -> int:
            ticks = 0
            with gate.open("r+") as held:
                fcntl.flock(held, fcntl.LOCK_EX)  # as a writer in another process does
                saving = asyncio.create_task(hf.aio.thread("t").save({"n": 2}, expect=holdfast.ANY))
                while ticks < 200:
                    await asyncio.sleep(0)
                    ticks += 1
                assert not saving.done()
            await asyncio.wait_for(saving, 20)
            return ticks

        assert asyncio.run(work()) == 200
        assert latest(hf.thread("t")).state == {"n": 2}


@everywhere
def test_d7_what_is_deleted_while_it_is_listed_stops_no_list(hf: Holdfast) -> None:
    thread = hf.thread("t")
    for n in range(1, 421):
        thread.save({"n": n})
    listing = hf.thread("t").history()
    first = next(listing)
    thread.prune(holdfast.Retention(keep_last=1))
    given = [first.seq, *(checkpoint.seq for checkpoint in listing)]
    assert given == sorted(given, reverse=True)
    assert first.seq == 420
    for n in range(210):
        hf.thread(f"u{n:03}").save({"n": n})
    names = hf.threads(prefix="u")
    assert next(names).name == "u000"
    for n in range(100, 210):
        hf.thread(f"u{n:03}").drop()
    assert {info.name for info in names} >= {f"u{n:03}" for n in range(1, 100)}
    assert seqs(thread) == [420]
    assert fill(hf.thread("after"), 1)[0].seq == 1
    assert latest(hf.thread("after")).state == state_at(1)
