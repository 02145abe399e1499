"""Turns, streams, children, questions and sleep, sync and async, killed before and after every write of the store."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.crash import ledger
from tests.crash.nursery import Child, Nursery
from tests.memory import folder_in_memory
from tests.runs.chat_agent import LOG, TURNS, Books, Ended, Job

FULL = os.environ.get("HOLDFAST_SWEEP", "") == "full"
SHARE = 6  # one point in so many, unless all are asked for
MOST_POINTS = 2000
REQUESTS = 2 * len(TURNS)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


def run_to(nursery: Nursery, folder: Path, *, is_async: bool, at: int) -> list[str]:
    path = folder / "job.json"
    path.write_bytes(msgspec.json.encode(Job(str(folder), is_async, at)))
    child: Child = nursery.start("tests.runs.chat_agent:work", path)
    try:
        child.wait_for_end()
    finally:
        child.close()
    assert child.failure is None, child.failure
    return child.lines


def check(folder: Path, line: str, kills: int) -> None:
    ended = msgspec.json.decode(line, type=Ended)
    assert ended.log == LOG
    assert ended.results == [f"done {turn}" for turn in TURNS]
    assert ended.helped == [f"helped {turn}" for turn in TURNS]
    books = Books(folder, lambda place: None)
    assert Counter(books.lines("ledger")) == {f"{tool} {turn}": 1 for tool in ("order", "pack") for turn in TURNS}
    assert REQUESTS <= len(books.lines("requests")) <= REQUESTS + kills


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_killed_at_every_point_the_conversation_goes_on(nursery: Nursery, is_async: bool) -> None:
    places: Counter[str] = Counter()
    share = 1 if FULL else SHARE
    for at in range(1 + is_async * (share // 2), MOST_POINTS, share):
        with folder_in_memory() as folder:
            [line] = run_to(nursery, folder, is_async=is_async, at=at)
            if not line.startswith("killed "):
                check(folder, line, 0)
                break
            places[line.split()[2]] += 1
            try:
                [ended] = run_to(nursery, folder, is_async=is_async, at=0)
                check(folder, ended, 1)
            except AssertionError as failure:
                pytest.fail(f"killed at point {at}, {line}:\n{failure}", pytrace=False)
    else:
        pytest.fail(f"the job has more than {MOST_POINTS} points")
    if FULL:
        assert {"commit", "claim", "journal", "post", "ledger", "requests"} <= set(places), places
    assert places.total() > 12, places
    ledger.note("kill of a run", "sqlite", conversation=places.total())
