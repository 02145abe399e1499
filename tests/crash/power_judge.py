"""Judges of what a power cut has left: a fresh process each, that opens the store as anybody would.

And who opens a store after a power cut, and works on, until the power is cut once more.
"""

from __future__ import annotations

import copy
import os
from contextlib import nullcontext, suppress
from pathlib import Path

import msgspec

import holdfast
from holdfast.errors import StoreError
from tests.codec.strategies import identical
from tests.crash.children import carry_out
from tests.crash.judge import (
    Candidate,
    Trial,
    candidates,
    difference,
    finish,
    settle,
    track_difference,
    verify,
)
from tests.crash.model import Operation, apply, state_of
from tests.crash.tracing import say, wait_for_tracer
from tests.crash.workload import MAIN, NAME, Job, script_of, tools_of

_NEXT = Operation("save", MAIN, 301)
_AGAIN = f"again {_NEXT.counter}"


def judge_quickly(path: Path, pipe: int) -> None:
    """As the crash lab's judge, with one more save instead of one more of each verb."""
    trial = msgspec.json.decode(path.read_bytes(), type=Trial)
    with holdfast.open(trial.store, tools=tools_of(trial.said.append)) as hf:
        line = settle(hf, candidates(trial.scene, trial.said))
        verify(hf, "as it was left")
        for job in (verb for verb in script_of(trial.scene) if isinstance(verb, Job)):
            finish(hf, job, trial.said)
        carry_out(hf, line, _NEXT)
        apply(line, _NEXT)
    with holdfast.open(trial.store) as hf:
        problem = difference(hf, Candidate(line))
        assert problem is None, f"after one more save: {problem}"
        verify(hf, "after one more save")
    os.write(pipe, b"sound\n")


def judge_leniently(path: Path, pipe: int) -> None:
    """The store is sound, and as it was at some moment: whatever was said since may be lost."""
    trial = msgspec.json.decode(path.read_bytes(), type=Trial)
    with holdfast.open(trial.store) as hf:
        verify(hf, "as it was left")
        line = settle(hf, earlier(trial))
        carry_out(hf, line, _NEXT)
        apply(line, _NEXT)
        problem = difference(hf, Candidate(line))
        assert problem is None, f"after one more save: {problem}"
        verify(hf, "after one more save")
    os.write(pipe, b"sound\n")


def judge_each_leniently(path: Path, pipe: int) -> None:
    """The store is sound, and each thread of it as it was at some moment of its own."""
    trial = msgspec.json.decode(path.read_bytes(), type=Trial)
    with holdfast.open(trial.store) as hf:
        verify(hf, "as it was left")
        there = {info.name for info in hf.threads(prefix=f"{NAME}/")}
        lines = [candidate.line for candidate in earlier(trial)]
        for name in {name for line in lines for name in line.tracks} - there:
            assert any(name not in line.tracks for line in lines), f"{name} is not there"
        for name in there:
            tracks = [line.tracks[name] for line in lines if name in line.tracks]
            problems = [track_difference(hf, name, track) for track in tracks]
            assert None in problems, f"{name} never was as it is: {problems}"
            hf.thread(name).save({"next": name})
        verify(hf, "after one more save")
    os.write(pipe, b"sound\n")


def judge_each_that_can_be_read(path: Path, pipe: int) -> None:
    """The store may be damaged, and says so: every state that can be loaded is one that was saved."""
    trial = msgspec.json.decode(path.read_bytes(), type=Trial)
    saved = [state_of(NAME, verb.counter) for verb in script_of(trial.scene)]
    with holdfast.open(trial.store) as hf:
        is_sound = hf.verify().ok
        with nullcontext() if is_sound else suppress(StoreError):
            for info in hf.threads(prefix=f"{NAME}/"):
                thread = hf.thread(info.name)
                for checkpoint in thread.history():
                    state = thread.load(checkpoint).state
                    assert any(identical(state, known) for known in saved), "a state that nobody saved"
    os.write(pipe, b"sound\n")


def earlier(trial: Trial) -> list[Candidate]:
    """What the store may have held at any moment until its worker said the last word."""
    possible: list[Candidate] = []
    for length in range(len(trial.said), -1, -1):
        said = [text for text in trial.said[:length] if text != "ended"]
        possible += [each for each in candidates(trial.scene, said) if each not in possible]
    return possible


# -- the power is cut twice --------------------------------------------------------------------------------------------


def work_again(path: Path, pipe: int) -> None:
    """Open what a power cut has left, and save once more."""
    trial = msgspec.json.decode(path.read_bytes(), type=Trial)
    wait_for_tracer(pipe)
    with holdfast.open(trial.store) as hf:
        line = settle(hf, candidates(trial.scene, trial.said))
        carry_out(hf, line, _NEXT)
        say(pipe, _AGAIN)
    os._exit(0)


def judge_again(path: Path, pipe: int) -> None:
    """What was left by the first cut is still there, and so is the save behind it if it was acknowledged."""
    trial = msgspec.json.decode(path.read_bytes(), type=Trial)
    said = [text for text in trial.said if text != _AGAIN]
    before = candidates(trial.scene, said)
    after = copy.deepcopy(before)
    for candidate in after:
        apply(candidate.line, _NEXT)
    with holdfast.open(trial.store) as hf:
        settle(hf, after if _AGAIN in trial.said else [*before, *after])
        verify(hf, "as it was left")
    os.write(pipe, b"sound\n")
