"""A run that a program of another framework calls its tools in: one claim for all calls that are under way at a time.

The framework keeps the state and knows where it is; the run is its journal of tools. It has one step that is never
closed, and calls are found by their keys for good. So keys must be unique in the thread.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Final

import msgspec

from holdfast.codec import msgpack
from holdfast.errors import LeaseLost, StoreError
from holdfast.policy import Never
from holdfast.runs.calls import Calls
from holdfast.runs.claiming import Terms
from holdfast.runs.core import RunCore
from holdfast.runs.drivers import Call
from holdfast.runs.entering import Claiming
from holdfast.runs.tool_calls import Parked, asking
from holdfast.runs.tools import Tool, Tools
from holdfast.stores.running import EffectRow
from holdfast.threads.context import Session

_OPEN_MAX: Final = 64  # entries that a claim reads; others are found by their marks
_FAILED_MAX: Final = 256  # entries after which a call that failed is not expected again
_ENDED: Final = ("done", "given_up")
_DOUBTFUL: Final = ("begun", "in_doubt", "asked", "unstored")


class Found(msgspec.Struct, frozen=True):
    """What the journal has of a call that has ended."""

    result: Any


class Asked(msgspec.Struct, frozen=True):
    """A call that waits for somebody to say what became of it, with `hf.settle`."""

    number: int
    name: str
    arguments: Any


class SharedRun:
    """The run of a thread. Any Python thread may use it."""

    def __init__(self, session: Session, name: str, start: Any, lease: float) -> None:
        """`start` is the state that the thread is begun with."""
        self.name: Final = name
        self._session = session
        self._start = start
        self._terms = Terms(lease=lease)
        self._lock = threading.Lock()
        self._core: RunCore | None = None
        self._inside = 0
        self._is_ending = False

    def finished(self, tool: Tool, key: str) -> Found | None:
        """What a call gave, if it has ended, whoever made it. Nothing is claimed for that."""
        store = self._session.store
        thread = store.thread(self.name)
        if thread is None:
            return None
        rows = store.marked(thread.position.thread, f"{tool.name}/{key}")
        newest = next((row for row in reversed(rows) if row.status != "late"), None)
        if newest is None or newest.status not in _ENDED or newest.result is None:
            return None
        return Found(msgpack.decode(newest.result))

    def enter(self) -> RunCore | None:
        """The run, claimed if no call is under way; None while it has to be given back first. LeaseHeld."""
        with self._lock:
            if self._is_ending:
                return None
            if self._core is None:
                claiming = Claiming(
                    self._session,
                    self.name,
                    Tools(),
                    Never(),
                    self._terms,
                    start=self._start,
                    has_start=True,
                    type=None,
                    effects="live",
                )
                self._core = claiming.enter(can_await=True, wait=0)
                self._core._journal.mark()
            self._inside += 1
            return self._core

    def leave(self, *, is_last: bool = False) -> None:
        """A call is over, and none can be made after the last one. With the last of all the run is given back."""
        with self._lock:
            self._is_ending = self._is_ending or is_last
            self._inside -= 1
            if self._inside or self._core is None:
                return
            core, self._core, self._is_ending = self._core, None, False
            # What was called is recorded. A run that cannot be given back is free when its lease ends.
            with suppress(LeaseLost, StoreError):
                _give_back(core)

    @property
    def is_held(self) -> bool:
        """Whether calls are under way in this process."""
        return self._core is not None

    def asked(self, row: EffectRow) -> Asked:
        """What somebody has to be asked, when the run was given back."""
        number = row.number
        if not number:
            store = self._session.store
            thread = store.thread(self.name)
            run = None if thread is None else store.run(thread.position.thread)
            number = 0 if run is None else run.question
        return Asked(number, row.name, None if row.call is None else msgpack.decode(row.call))

    def renew(self) -> None:
        """After fork(), in the child: whoever held the lock, or the run, is not here."""
        self._lock = threading.Lock()
        self._core, self._inside, self._is_ending = None, 0, False


class Making:
    """One call, from its beginning to its end."""

    def __init__(self, core: RunCore, tool: Tool, given: dict[str, Any], key: str) -> None:
        self._core = core
        self._tool = tool
        self._given = given
        self._key = key
        self._is_begun = False
        self.question: EffectRow | None = None
        self.is_last = False  # no further call can be made in this claim

    def call(self) -> Call:
        return self._core.calling(self._made)

    def _made(self, calls: Calls) -> Call:
        self._is_begun = True
        return calls.making(self._tool, self._given, self._key)

    def park(self, parked: Parked) -> None:
        """Somebody has to be asked: about this call, or about another, and this one was not begun."""
        self.is_last = True
        if self._is_begun:
            self.question = parked.row

    def failed(self, error: Exception) -> None:
        """The call raised. It is made anew when it is asked for again: what became of the error is not known here."""
        if isinstance(error, LeaseLost):
            self.is_last = True
            return
        with suppress(LeaseLost, StoreError):
            self._core._journal.flush()
            if self._core._calls is not None:
                self._core._calls.reopen(error)


def _give_back(core: RunCore) -> None:
    core.end_calls()
    calls, journal, lease = core._calls, core._journal, core._lease
    if calls is None or lease is None:
        return
    journal.flush()
    entries = journal.entries()
    if calls.parked is None:
        # A question that was asked before stays one, whoever called something else meanwhile.
        unanswered = next((row for row in entries if row.status == "in_doubt" and row.kind == "irreversible"), None)
        calls.parked = None if unanswered is None else asking(unanswered)
    if len(entries) > _OPEN_MAX and all(_is_over(row, journal.last) for row in entries):
        lease.changed(closed=journal.last)
    core.leave(None)


def _is_over(row: EffectRow, last: int) -> bool:
    """Whether a call need not be found in the open step. One that failed keeps its idempotency key by being there."""
    return row.status in _ENDED or (row.status not in _DOUBTFUL and row.number < last - _FAILED_MAX)
