"""The judge: compares the ledger with the needs of each order. It does not use Holdfast's journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any

import msgspec

from examples.fleet.chaos import KINDS, RESTARTED, Crash, Kind
from examples.fleet.ledger import Ledger, Note
from examples.fleet.orders import TOOLS, Call, reply_to, result_of, script_of, task_of, thread_of

ENDED = ("finished", "parked")
SIGNS = ("claimed", "heard")  # a sign that a run continues


class Tally(msgspec.Struct):
    """The calls of a tool, or of the model, over all runs."""

    needed: int = 0
    once: int = 0
    again: int = 0
    looked: int = 0
    unknown: int = 0
    never: int = 0


class Loss(msgspec.Struct):
    """The cost of crashes of one kind: seconds from the crash to the next event, for each affected run."""

    kind: Kind
    crashes: int
    seconds: list[float]

    @property
    def middle(self) -> float:
        return median(self.seconds) if self.seconds else 0.0

    @property
    def longest(self) -> float:
        return max(self.seconds, default=0.0)


class Verdict:
    """The result for all runs. `findings` is empty if nothing was lost and nothing was done twice."""

    def __init__(self, ledger: Ledger, orders: Iterable[int], crashes: list[Crash]) -> None:
        self.findings: list[str] = []
        self.tallies = {name: Tally() for name in ("model", *TOOLS)}
        self.losses = [Loss(kind, sum(crash.kind == kind for crash in crashes), []) for kind in KINDS]
        self.takeovers = 0
        self.completed = 0
        self._crashes = crashes
        for order in orders:
            self._judge(order, ledger.notes(thread_of(order)))

    def read_end(self, order: int, status: str, result: Any, state: Any) -> None:
        """Judge how a run ended, by its thread."""
        thread = thread_of(order)
        if status != "completed":
            self.findings.append(f"{thread} is {status}")
            return
        self.completed += 1
        if result != result_of(order) or _without_results(state) != _without_results(_expected(order)):
            self.findings.append(f"{thread} is completed, but its state or result differs from the script")

    def _judge(self, order: int, notes: list[Note]) -> None:
        script = script_of(order)
        models = [f"model {turn}" for turn in range(len(script))]
        tools = [call for turn in script for call in turn]
        named: dict[str, list[Note]] = {name: [] for name in (*models, *(call.name for call in tools))}
        for note in notes:
            if note.call:
                named.setdefault(note.call, []).append(note)
        found = [
            *(problem for name in models for problem in self._model(named[name], notes)),
            *(problem for call in tools for problem in self._tool(call, named[call.name], notes)),
        ]
        needed = {*models, *(call.name for call in tools)}
        found += [f"{name} was called, but is not in the script" for name in named if name not in needed]
        self.findings += [f"{thread_of(order)}: {problem}" for problem in found]
        visits = _visits(notes)
        self.takeovers += sum(not before.is_over for before in visits[:-1])
        for crash in self._crashes:
            lost = _lost(crash, visits, notes)
            if lost is not None:
                self.losses[KINDS.index(crash.kind)].seconds.append(lost)

    def _model(self, notes: list[Note], all_notes: list[Note]) -> Iterator[str]:
        calls = _count(notes, "called")
        tally = self.tallies["model"]
        tally.needed += 1
        tally.once += calls == 1
        tally.again += max(calls - 1, 0)
        yield from _after_next(notes, all_notes)
        if not calls:
            yield "the model was not called for a turn"

    def _tool(self, call: Call, notes: list[Note], all_notes: list[Note]) -> Iterator[str]:
        calls, acts = _count(notes, "called"), _count(notes, "acted")
        keys = {note.key for note in notes if note.event == "acted"}
        unknown = any(note.event == "heard" and "unknown" in note.text for note in notes)
        tally = self.tallies[call.tool]
        tally.needed += 1
        tally.again += max(calls - 1, 0)
        tally.looked += _count(notes, "looked")
        tally.unknown += unknown
        effects = {"read": min(calls, 1), "idempotent": len(keys)}.get(TOOLS[call.tool], acts)
        tally.once += effects == 1
        tally.never += effects == 0
        if effects > 1:
            yield f"{call.name} happened {effects} times"
        if not effects and not unknown:
            yield f"{call.name} was lost"
        if TOOLS[call.tool].startswith("irreversible"):
            yield from _after_heard(notes)
            yield from _called_blindly(notes)
        elif call.tool != "look_up":  # the result of a read is recorded with the next write, not before the next call
            yield from _after_next(notes, all_notes)


def _after_heard(notes: list[Note]) -> Iterator[str]:
    """A received result was recorded, so the call must not be repeated."""
    heard = next((place for place, note in enumerate(notes) if note.event == "heard"), len(notes))
    if any(note.event == "called" for note in notes[heard:]):
        yield f"{notes[0].call} was recorded, but called again"


def _after_next(notes: list[Note], all_notes: list[Note]) -> Iterator[str]:
    """A received result is recorded before the next call, so the call must not be repeated after that one."""
    heard = next((place for place, note in enumerate(all_notes) if note in notes and note.event == "heard"), None)
    if heard is None:
        return
    later = enumerate(all_notes[heard:], heard)
    following = next((place for place, note in later if note.event == "called" and note not in notes), len(all_notes))
    if any(note.event == "called" and note in notes for note in all_notes[following:]):
        yield f"{notes[0].call} was recorded, but called again"


def _called_blindly(notes: list[Note]) -> Iterator[str]:
    """A call must not be repeated, unless a check found that it had not happened."""
    may = True
    for note in notes:
        if note.event == "called":
            if not may:
                yield f"{note.call} was started again without a check"
            may = False
        elif note.event == "looked":
            may = note.text == "not done"


def _count(notes: list[Note], event: str) -> int:
    return sum(note.event == event for note in notes)


# -- which worker had a run, and the cost of a crash -------------------------------------------------------------------


class _Visit(msgspec.Struct):
    """The time in which a worker had a run, without an end if the worker died."""

    pid: int
    started: float
    ended: float | None = None
    how: str = ""

    @property
    def is_over(self) -> bool:
        """Whether the run was released, so that the next visit is not a takeover."""
        return self.how in ENDED


def _visits(notes: list[Note]) -> list[_Visit]:
    visits: list[_Visit] = []
    for note in notes:
        if note.event == "claimed":
            visits.append(_Visit(note.pid, note.at))
        elif note.event == "left":
            # The newest visit of this worker: a worker that lost the run may leave after another has claimed it.
            visit = next(visit for visit in reversed(visits) if visit.pid == note.pid and visit.ended is None)
            visit.ended, visit.how = note.at, note.text
    return visits


def _lost(crash: Crash, visits: list[_Visit], notes: list[Note]) -> float | None:
    """Seconds until a run continued after its worker or the server crashed; None if the run was not affected."""
    started = [visit for visit in visits if visit.started <= crash.at]
    if not started or (started[-1].ended is not None and started[-1].ended <= crash.at):
        return None
    if crash.kind != RESTARTED and started[-1].pid != crash.pid:
        return None
    return next((note.at - crash.at for note in notes if note.event in SIGNS and note.at > crash.at), None)


def _expected(order: int) -> list[dict[str, Any]]:
    """The conversation of a run, without tool results."""
    messages: list[dict[str, Any]] = task_of(order)["messages"]
    while True:
        reply = reply_to(messages)
        messages.append(reply)
        if not reply["calls"]:
            return messages
        messages += [{"role": "tool", "id": call["id"]} for call in reply["calls"]]


def _without_results(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    is_tool = [message["role"] == "tool" for message in messages]
    return [
        {"role": "tool", "id": message["id"]} if tool else message
        for message, tool in zip(messages, is_tool, strict=True)
    ]
