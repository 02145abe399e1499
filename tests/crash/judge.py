"""The judge of the crash lab: a fresh process that holds what a store has against what its worker said.

What was acknowledged is there, equal. What failed with a promise that nothing was changed has changed nothing; what
else failed, and what was in flight at a kill, has happened whole or not at all. The history is a tree, `verify` finds
nothing, journals are paired, no call that returned is made again; and every verb works on that store.
"""

from __future__ import annotations

import copy
import os
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec

import holdfast
from holdfast import Happened, Holdfast, NotDone, Retention, Run
from holdfast.errors import HoldfastError
from tests.codec.strategies import identical
from tests.crash.children import AT_ONCE, carry_out, counter_in
from tests.crash.model import Line, Operation, Track, apply, removable, state_of
from tests.crash.workload import (
    MAIN,
    NAME,
    NOTHING_CHANGED,
    TURNS,
    Job,
    Scene,
    script_of,
    tools_of,
    work_on,
)

_UNCHANGED = {error.__name__ for error in NOTHING_CHANGED} | {"NotFound", "Conflict", "AlreadyExists", "LeaseLost"}
# One more of each verb, on whatever is left.
_NEXT: tuple[Operation, ...] = (
    Operation("save", MAIN, 301),
    Operation("save", MAIN, 302),
    Operation("fork", f"{NAME}/next", 303, back=1),
    Operation("save", f"{NAME}/next", 304),
    Operation("rewind", MAIN, 305, back=1),
    Operation("save", MAIN, 306),
    Operation("prune", MAIN, 307, keep=2),
    Operation("optimize", MAIN, 308),
    Operation("drop", f"{NAME}/next", 309),
    Operation("optimize", MAIN, 310),
)
_NEXT_JOB = Job(300)


class Trial(msgspec.Struct):
    """What the judge is told: where the store is, and what its worker said before it ended."""

    store: str
    scene: Scene
    said: list[str]


class Candidate(NamedTuple):
    """A line as it may be, and the checkpoints of it that an unfinished prune may have deleted."""

    line: Line
    loose: frozenset[tuple[str, int]] = frozenset()


def judge(path: Path, pipe: int) -> None:
    """Judge a store, and report "sound"; an AssertionError says what is wrong."""
    trial = msgspec.json.decode(path.read_bytes(), type=Trial)
    hf = holdfast.open(trial.store, tools=tools_of(trial.said.append))
    line = settle(hf, candidates(trial.scene, trial.said))
    verify(hf, "as it was left")
    jobs = [verb for verb in script_of(trial.scene) if isinstance(verb, Job)]
    for job in jobs:
        finish(hf, job, trial.said)
    go_on(hf, line, trial.said)
    verify(hf, "after one more of each verb")
    hf.close()
    with holdfast.open(trial.store) as hf:
        problem = difference(hf, Candidate(line))
        assert problem is None, f"after one more of each verb: {problem}"
    os.write(pipe, b"sound\n")


def verify(hf: Holdfast, when: str) -> None:
    report = hf.verify()
    assert report.ok, f"verify, {when}: {report.problems[:5]}"


# -- threads -----------------------------------------------------------------------------------------------------------


def candidates(scene: Scene, said: list[str]) -> list[Candidate]:
    """What a store may hold after a worker said that."""
    verdicts: dict[int, list[str]] = {}
    for words in (text.split() for text in said):
        if words[0] in ("done", "failed", "settled"):
            verdicts.setdefault(int(words[1]), []).append(words[-1])
    is_dead = "ended" not in said
    possible = [Candidate(Line(NAME))]
    for verb in script_of(scene):
        verdict = verdicts.get(verb.counter)
        if isinstance(verb, Operation) and (verdict is not None or is_dead):
            possible = _after(possible, verb, verdict or ["in flight"])
        if verdict is None and is_dead:
            break
    return possible


def _after(possible: list[Candidate], verb: Operation, verdict: list[str]) -> list[Candidate]:
    done = [candidate for each in possible if (candidate := _applied(each, verb)) is not None]
    if verdict[-1] in (str(verb.counter), "there"):
        return done
    if verb.kind == "prune":
        possible = [_loosened(each, verb) for each in possible]
    if verdict[-1] in _UNCHANGED or verdict[-1] == "gone":
        return possible
    return possible + [each for each in done if each not in possible]


def _applied(candidate: Candidate, verb: Operation) -> Candidate | None:
    """The line after a verb; None if the verb cannot be done on it."""
    line = copy.deepcopy(candidate.line)
    main = line.tracks.get(MAIN)
    is_there = verb.thread in line.tracks
    can = {
        "save": True,
        "rewind": main is not None and main.ancestor(verb.back) > 0,
        "fork": not is_there and main is not None and main.ancestor(verb.back) > 0,
        "edited fork": not is_there and main is not None and main.ancestor(verb.back) > 0,
        "drop": is_there,
        "prune": is_there,
        "optimize": True,
    }
    if not can[verb.kind]:
        return None
    apply(line, verb)
    return Candidate(line, candidate.loose)


def _loosened(candidate: Candidate, verb: Operation) -> Candidate:
    if verb.thread not in candidate.line.tracks:
        return candidate
    return Candidate(candidate.line, candidate.loose | {(verb.thread, seq) for seq in removable(candidate.line, verb)})


def settle(hf: Holdfast, possible: list[Candidate]) -> Line:
    """The candidate that the store holds."""
    problems: list[str] = []
    for candidate in possible:
        settled = _without_deleted(hf, candidate)
        problem = difference(hf, settled)
        if problem is None:
            return settled.line
        problems.append(f"after operation {candidate.line.done}: {problem}")
    raise AssertionError("the store holds nothing that was acknowledged or in flight:\n" + "\n".join(problems))


def _without_deleted(hf: Holdfast, candidate: Candidate) -> Candidate:
    line = copy.deepcopy(candidate.line)
    for name, seq in candidate.loose:
        if name in line.tracks and seq not in {checkpoint.seq for checkpoint in hf.thread(name).history()}:
            line.tracks[name].counters[seq - 1] = 0
    return Candidate(line)


def difference(hf: Holdfast, candidate: Candidate) -> str | None:
    """How the store differs from a line, in every checkpoint; None if it does not."""
    line = candidate.line
    names = {info.name for info in hf.threads(prefix=f"{NAME}/")}
    if names != set(line.tracks):
        return f"the threads are {sorted(names)} instead of {sorted(line.tracks)}"
    found = (track_difference(hf, name, track) for name, track in line.tracks.items())
    return next((problem for problem in found if problem is not None), None)


def track_difference(hf: Holdfast, name: str, track: Track) -> str | None:
    """How a thread differs from what it should hold, in every checkpoint; None if it does not."""
    thread = hf.thread(name)
    latest = thread.latest()
    if latest is None or latest.seq != track.head:
        return f"{name}: the head is {latest and latest.seq} instead of {track.head}"
    history = list(thread.history())
    if [checkpoint.seq for checkpoint in history] != track.live or thread.count() != len(track.live):
        return f"{name}: checkpoints {[checkpoint.seq for checkpoint in history]} instead of {track.live}"
    ids = {checkpoint.seq: checkpoint.id for checkpoint in history}
    for checkpoint in history:
        state = thread.load(checkpoint).state
        if not identical(state, state_of(NAME, track.counters[checkpoint.seq - 1])):
            return f"{name}: the state of checkpoint {checkpoint.seq} is that of {counter_in(state)}"
        parent = track.parents[checkpoint.seq - 1]
        if parent in ids and checkpoint.parent != ids[parent]:
            return f"{name}: the parent of checkpoint {checkpoint.seq} is not checkpoint {parent}"
    return None


def go_on(hf: Holdfast, line: Line, said: list[str]) -> None:
    """One more of each verb; the first of them is not held up by anything that the worker left."""
    before = time.monotonic()
    for operation in _NEXT:
        try:
            carry_out(hf, line, operation)
        except HoldfastError as error:
            raise AssertionError(f"{operation.kind} does not work on what is left: {error!r}") from error
        took = time.monotonic() - before
        assert operation.counter > _NEXT[0].counter or took < AT_ONCE, f"the next save was held up for {took:.1f} s"
        apply(line, operation)
    finish(hf, _NEXT_JOB, said)
    hf.thread(_NEXT_JOB.thread).prune(Retention(keep_last=1))


# -- runs --------------------------------------------------------------------------------------------------------------


def finish(hf: Holdfast, job: Job, said: list[str]) -> None:
    """Look at the journal of a run, finish the run, and count what was done."""
    called = {text for text in said if text.startswith(f"called {job.counter} ")}
    known = hf.threads(prefix=job.thread, limit=1)
    if any(info.name == job.thread for info in known):
        journal = hf.effects(job.thread)
        recorded = Counter(effect.name.rpartition(".")[2] for effect in journal if effect.status == "done")
        unpaired = [effect for effect in journal if effect.status in ("started", "in_doubt")]
        assert len(unpaired) <= 1, f"{job.thread}: {len(unpaired)} calls have no outcome"
        wanted = Counter(text.split()[-1] for text in called)
        assert not wanted - recorded, f"{job.thread}: the journal has {recorded}, and {wanted} returned"
    else:
        assert not called, f"{job.thread}: it is gone, and calls of it returned"
    acted = Counter(text for text in said if text.startswith(f"acted {job.counter} "))
    run = _once_more(hf, job, said)
    for effect in hf.effects(job.thread):
        if effect.status == "in_doubt":
            has_acted = acted[f"acted {job.counter} {effect.arguments['turn']} {effect.name}"] > 0
            hf.settle(job.thread, effect, Happened({"paid": effect.arguments["turn"]}) if has_acted else NotDone())
            run = _once_more(hf, job, said)
    assert (run.status, run.result) == ("completed", "done"), f"{job.thread} is {run.status}"
    after = Counter(text for text in said if text.startswith(f"acted {job.counter} "))
    for turn in range(TURNS):
        for name in ("model", "note", "pay"):
            what = f"{job.counter} {turn} {name}"
            assert after[f"acted {what}"] >= 1, f"{what} was never done"
            again = after[f"acted {what}"] - acted[f"acted {what}"]
            assert not again or f"called {what}" not in called, f"{what} had returned, and was done again"
            assert name != "pay" or after[f"acted {what}"] == 1, f"{what} was done {after[f'acted {what}']} times"


def _once_more(hf: Holdfast, job: Job, said: list[str]) -> Run:
    with hf.run(job.thread, start={"said": []}) as run:
        work_on(run, job.counter, said.append)
    return run
