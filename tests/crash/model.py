"""What a store must hold after any number of operations, computed without Holdfast.

A child and the test that kills it both run these functions: the child to know what to do next, the test to know, from
the number of acknowledged operations alone, what must be there.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Any, Literal

import msgspec

Mix = Literal["plain", "rewind", "fork", "prune", "optimize", "all"]
Kind = Literal["save", "rewind", "fork", "edited fork", "save fork", "drop", "prune", "optimize"]

MIXES: dict[Mix, dict[Kind, int]] = {
    "plain": {"save": 1},
    "rewind": {"save": 5, "rewind": 2},
    "fork": {"save": 4, "fork": 2, "edited fork": 1, "save fork": 4},
    "prune": {"save": 5, "prune": 1},
    "optimize": {"save": 5, "optimize": 1},
    "all": {"save": 8, "rewind": 2, "fork": 1, "edited fork": 1, "save fork": 3, "prune": 1, "optimize": 1},
}
FORKS = 3
SUMMARY_EVERY = 37
KEPT_AT_SUMMARY = 6
FILES = 90  # more than a skeleton holds inline
PROMPT_EVERY = 60
_WORDS = ("agent", "tool", "result", "retry", "invoice", "customer", "refund", "order", "the", "a", "failed", "done")


class Track(msgspec.Struct):
    """One thread. Index `seq - 1` of `counters` is the operation that made that checkpoint, 0 if it was deleted."""

    counters: list[int]
    parents: list[int]
    head: int
    origin: int = 0  # the seq of the main thread at which a fork began

    @property
    def live(self) -> list[int]:
        """The checkpoints that are there, newest first."""
        return [seq for seq in range(len(self.counters), 0, -1) if self.counters[seq - 1]]

    def ancestor(self, back: int) -> int:
        """The checkpoint `back` before the head on its branch, 0 if there are not so many."""
        seq = self.head
        while seq and back:
            seq = self.parents[seq - 1]
            back -= bool(seq and self.counters[seq - 1])
        return seq

    def add(self, counter: int, parent: int) -> None:
        self.counters.append(counter)
        self.parents.append(parent)
        self.head = len(self.counters)


class Line(msgspec.Struct):
    """The threads one child works on, after `done` operations."""

    name: str
    done: int = 0
    tracks: dict[str, Track] = {}

    @property
    def main(self) -> str:
        return f"{self.name}/main"


class Operation(msgspec.Struct, frozen=True):
    """Something a child does. `counter` is its number, and marks the state it saves."""

    kind: Kind
    thread: str
    counter: int
    back: int = 0
    keep: int = 0


def next_operation(line: Line, mix: Mix, seed: int) -> Operation:
    """What comes after `line.done` operations."""
    random = Random(f"{seed}/{line.name}/{line.done}")
    counter = line.done + 1
    weights = MIXES[mix]
    kind = random.choices(list(weights), list(weights.values()))[0]
    fork = f"{line.name}/fork-{random.randrange(FORKS)}"
    back = random.randrange(1, 5)
    main = line.tracks.get(line.main)
    if main is None or (kind in ("rewind", "fork", "edited fork") and not main.ancestor(back)):
        return Operation("save", line.main, counter)
    if kind in ("fork", "edited fork"):
        return Operation("drop" if fork in line.tracks else kind, fork, counter, back)
    if kind == "save fork":
        return Operation("save", fork if fork in line.tracks else line.main, counter)
    return Operation(kind, line.main, counter, back, keep=random.randrange(5, 40))


def apply(line: Line, operation: Operation) -> None:
    """Change the line as an operation does. In place: a child does this between its saves, as fast as it can."""
    line.done = operation.counter
    track = line.tracks.get(operation.thread)
    main = line.tracks.get(line.main)
    match operation.kind:
        case "save" if track is None:
            line.tracks[operation.thread] = Track([operation.counter], [0], 1)
        case "save" if track is not None:
            track.add(operation.counter, track.head)
        case "rewind" if track is not None:
            track.head = track.ancestor(operation.back)
        case "fork" | "edited fork" if main is not None:
            origin = main.ancestor(operation.back)
            counter = main.counters[origin - 1] if operation.kind == "fork" else operation.counter
            line.tracks[operation.thread] = Track([counter], [0], 1, origin)
        case "drop":
            del line.tracks[operation.thread]
        case "prune" if track is not None:
            for seq in removable(line, operation):
                track.counters[seq - 1] = 0
        case "optimize":
            pass
        case _:
            raise AssertionError(f"{operation.kind} cannot come here")


def removable(line: Line, operation: Operation) -> list[int]:
    """The checkpoints that a prune of the main thread may delete."""
    track = line.tracks[operation.thread]
    stay = {track.head, *(other.origin for other in line.tracks.values())}
    return [seq for seq in track.live[operation.keep :] if seq not in stay]


def state_of(line: str, counter: int) -> dict[str, Any]:
    """The state that operation `counter` saves: messages that grow and are summarised now and then."""
    summarised = counter // SUMMARY_EVERY * SUMMARY_EVERY
    messages: list[Any] = [{"role": "system", "content": f"so far: {summarised} operations"}] if summarised else []
    messages += [message(line, number) for number in range(max(0, summarised - KEPT_AT_SUMMARY), counter)]
    return {
        "counter": counter,
        "prompt": prompt(line, counter // PROMPT_EVERY),
        "messages": messages,
        "files": {f"src/{name}.py": (counter + name) // FILES for name in range(FILES)},
        "spent": counter / 8,
    }


@lru_cache(maxsize=4096)
def message(line: str, number: int) -> dict[str, Any]:
    random = Random(f"{line}/{number}")
    words = random.choices(_WORDS, k=random.choice((3, 20, 20, 60, 400)))
    return {"role": random.choice(("user", "assistant", "tool")), "content": " ".join(words), "number": number}


@lru_cache(maxsize=64)
def prompt(line: str, number: int) -> str:
    """Large enough to be stored once, apart from the states that hold it."""
    return " ".join(Random(f"{line}/prompt/{number}").choices(_WORDS, k=4000))
