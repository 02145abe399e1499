"""Keyboard interrupts in the middle of a save: the log is whole, and the handle goes on."""

from __future__ import annotations

import random
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import holdfast
from holdfast import Conflict, Holdfast, StoreError
from tests.selection import tries


class Timer:
    """Ctrl-C after some time."""

    def __init__(self) -> None:
        self._is_set = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self._is_set:  # a signal may arrive after its timer was stopped
            signal.default_int_handler(number, frame)

    def interrupted(self, hf: Holdfast, state: Any, seconds: float) -> BaseException | None:
        """Save, and be interrupted after some time; the interrupt, if it came in time."""
        thread = hf.thread("t")
        thread.latest()
        tracer = sys.gettrace()
        sys.settrace(None)  # an interrupt inside the tracer of coverage would leave its lock locked
        try:
            self._is_set = True
            signal.setitimer(signal.ITIMER_REAL, seconds)
            thread.save(state)
            self._is_set = False
        except KeyboardInterrupt as error:
            return error
        finally:
            self._is_set = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.settrace(tracer)
        return None


@pytest.fixture
def timer() -> Iterator[Timer]:
    found = Timer()
    before = signal.signal(signal.SIGALRM, found.handle)
    yield found
    signal.signal(signal.SIGALRM, before)


# An interrupt that strikes in a callback of the garbage collector is reported and ignored by Python.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_save_leaves_a_whole_log(tmp_path: Path, timer: Timer) -> None:
    url = f"dir:{tmp_path / 'store'}"
    source = random.Random(5)
    kept: list[BaseException] = []  # with their tracebacks, as a shell keeps the last one
    where: set[str] = set()
    with holdfast.open(url, durability="normal") as hf, holdfast.open(url) as other:
        hf.thread("t").save({"n": 0})
        saved = [0]
        for n in range(1, tries(1500, 200)):
            error = timer.interrupted(hf, {"n": n, "text": "x" * source.randrange(3000)}, source.uniform(5e-6, 1.2e-3))
            if error is not None:
                kept.append(error)
                frames = traceback.extract_tb(error.__traceback__)
                where.update(frame.name for frame in frames if "/stores/log/" in frame.filename)
            latest = other.thread("t").latest()
            assert latest is not None
            assert latest.state["n"] in (saved[-1], n)
            assert error is not None or latest.state["n"] == n
            if latest.state["n"] == n:
                saved.append(n)
            # The handle that was interrupted goes on, and so does another one.
            if n % 5 == 0:
                for each in (hf, other):
                    seen = each.thread("t").latest()
                    assert seen is not None
                    assert seen.state["n"] == saved[-1]
                    saved.append(-len(saved))
                    thread = each.thread("t")
                    thread.latest()
                    thread.save({"n": saved[-1]})
        assert len(kept) > 10
        assert not {"_carry_out", "append"} & where, "an interrupt was raised in the middle of a write"
        assert [each.state["n"] for each in map(other.thread("t").load, ids(other))] == saved[::-1]
    with holdfast.open(url) as new:
        assert new.verify().ok
        assert list(new.context.store.check()) == []


def ids(hf: Holdfast) -> list[str]:
    return [each.id for each in hf.thread("t").history()]


def test_a_log_that_grew_unseen_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of a group comes from the log: an append compares where the log ends with what the handle has read."""
    url = f"dir:{tmp_path / 'store'}"
    with holdfast.open(url, durability="off") as hf, holdfast.open(url, durability="off") as other:
        hf.thread("t").save({"n": 1})
        store: Any = hf.context.store
        log = store._space.named("t")
        seen = log._seen
        other.thread("t").latest()
        other.thread("t").save({"n": 2})
        looks = 0

        def blind() -> Any:
            nonlocal looks
            looks += 1
            if looks > 3:
                monkeypatch.undo()
            return seen

        monkeypatch.setattr(log.device, "stat", blind)
        with pytest.raises((Conflict, StoreError)):
            hf.thread("t").save({"n": 3}, expect=hf.thread("t").head())
        assert looks > 3
        assert list(other.context.store.check()) == []
        latest = other.thread("t").latest()
        assert latest is not None
        assert latest.state == {"n": 2}
