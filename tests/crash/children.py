"""What the children of the crash tests run: one works until it is killed, one looks at what is left."""

from __future__ import annotations

import copy
import os
import signal
import time
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

import holdfast
from holdfast import Holdfast, Retention
from tests.codec.strategies import identical
from tests.crash.model import Line, Mix, Operation, apply, next_operation, removable, state_of

AT_ONCE = 8.0  # seconds; a lock left behind by a dead process would hold a save up for ten
RECENT = 60


class Work(msgspec.Struct):
    """What a worker is told."""

    store: str
    durability: Literal["full", "normal", "off"]
    line: Line
    mix: Mix
    seed: int
    forgetful: bool = False  # acknowledges saves that it does not make, to see that the test notices


class Left(msgspec.Struct):
    """A line, and how many operations on it were acknowledged before its worker was killed. No mix: nobody worked."""

    line: Line
    mix: Mix | None
    acknowledged: int


class Inspection(msgspec.Struct):
    """What an inspector is told."""

    store: str
    durability: Literal["full", "normal", "off"]
    left: list[Left]
    seed: int
    verify: bool
    close: bool


def write_task(path: Path, task: Work | Inspection) -> Path:
    path.write_bytes(msgspec.json.encode(task))
    return path


# -- working -----------------------------------------------------------------------------------------------------------


def work(task: Path, pipe: int) -> None:
    """Save, rewind, fork … until killed. A line is reported after each operation has returned."""
    job = msgspec.json.decode(task.read_bytes(), type=Work)
    hf = holdfast.open(job.store, durability=job.durability)
    line = job.line
    while True:
        operation = next_operation(line, job.mix, job.seed)
        if not job.forgetful or operation.counter == 1:
            carry_out(hf, line, operation)
        apply(line, operation)
        os.write(pipe, f"{operation.counter}\n".encode())


def carry_out(hf: Holdfast, line: Line, operation: Operation) -> None:
    thread = hf.thread(operation.thread)
    match operation.kind:
        case "save":
            thread.save(state_of(line.name, operation.counter))
        case "rewind":
            thread.rewind(f"@-{operation.back + 1}")
        case "fork":
            hf.thread(line.main).fork(operation.thread, at=f"@-{operation.back + 1}")
        case "edited fork":
            state = state_of(line.name, operation.counter)
            hf.thread(line.main).fork(operation.thread, at=f"@-{operation.back + 1}", state=state)
        case "drop":
            thread.drop()
        case "prune":
            thread.prune(Retention(keep_last=operation.keep))
        case "optimize":
            hf.optimize()


# -- looking at what is left -------------------------------------------------------------------------------------------


def inspect(task: Path, pipe: int) -> None:
    """Check every line, save once more to each, and report the lines as they are then."""
    job = msgspec.json.decode(task.read_bytes(), type=Inspection)
    random = Random(f"{job.seed}/inspect")
    before = time.monotonic()
    hf = holdfast.open(job.store, durability=job.durability)
    lines = [settle(hf, left, job.seed, random) for left in job.left]
    if job.verify:
        report = hf.verify()
        assert report.ok, report.problems[:5]
        assert report.checkpoints == sum(len(track.live) for line in lines for track in line.tracks.values())
        before = time.monotonic()
    for line in lines:
        operation = Operation("save", line.main, line.done + 1)
        carry_out(hf, line, operation)
        apply(line, operation)
    took = time.monotonic() - before
    assert took < AT_ONCE, f"the next save was held up for {took:.1f} s"
    for line in lines:
        problem = difference(hf, line, random)
        assert problem is None, f"after the next save: {problem}"
    if job.close:
        hf.close()
    os.write(pipe, msgspec.json.encode(lines) + b"\n")
    if not job.close:
        signal.pause()  # killed here: the next process finds the WAL as it is


def settle(hf: Holdfast, left: Left, seed: int, random: Random) -> Line:
    """The line as it is: after what was acknowledged, or after the one operation in flight as well."""
    line = left.line
    if left.mix is None:
        problem = difference(hf, line, random)
        assert problem is None, f"{line.name}, where nobody worked: {problem}"
        return line
    while line.done < left.acknowledged:
        apply(line, next_operation(line, left.mix, seed))
    in_flight = next_operation(line, left.mix, seed)
    further = copy.deepcopy(line)
    if in_flight.kind == "prune":
        # Not one transaction: any part of what it would delete may be gone.
        track, there = line.tracks[in_flight.thread], seqs_of(hf, in_flight.thread, None)
        for seq in set(removable(line, in_flight)) - set(there):
            track.counters[seq - 1] = 0
    apply(further, in_flight)
    problems = [difference(hf, candidate, random) for candidate in (line, further)]
    for candidate, problem in zip((line, further), problems, strict=True):
        if problem is None:
            # What was in flight was not acknowledged. It is over in either case: the next child begins after it.
            candidate.done = in_flight.counter
            return candidate
    raise AssertionError(
        f"{line.name}: acknowledged up to operation {left.acknowledged}, then {in_flight.kind} in flight.\n"
        f"Without it: {problems[0]}\nWith it: {problems[1]}"
    )


def difference(hf: Holdfast, line: Line, random: Random) -> str | None:
    """How the store differs from a line; None if it does not."""
    names = {info.name for info in hf.threads(prefix=f"{line.name}/")}
    if names != set(line.tracks):
        return f"the threads are {sorted(names)} instead of {sorted(line.tracks)}"
    for name, track in line.tracks.items():
        thread = hf.thread(name)
        latest = thread.latest()
        if latest is None:
            return f"{name}: latest() is None"
        if latest.seq != track.head:
            return f"{name}: the head is {latest.seq} instead of {track.head}"
        if not identical(latest.state, state_of(line.name, track.counters[track.head - 1])):
            return f"{name}: the state of checkpoint {latest.seq} is that of {counter_in(latest.state)}"
        if seqs_of(hf, name, RECENT) != track.live[:RECENT] or thread.count() != len(track.live):
            return f"{name}: checkpoints {seqs_of(hf, name, RECENT)} instead of {track.live[:RECENT]}"
        recent = list(thread.history(RECENT))
        for checkpoint in random.sample(recent, min(3, len(recent))):
            state = thread.load(checkpoint).state
            if not identical(state, state_of(line.name, track.counters[checkpoint.seq - 1])):
                return f"{name}: the state of checkpoint {checkpoint.seq} is that of {counter_in(state)}"
    return None


def seqs_of(hf: Holdfast, name: str, limit: int | None) -> list[int]:
    return [checkpoint.seq for checkpoint in hf.thread(name).history(limit)]


def counter_in(state: Any) -> str:
    return f"operation {state['counter']}" if isinstance(state, dict) and "counter" in state else "none"
