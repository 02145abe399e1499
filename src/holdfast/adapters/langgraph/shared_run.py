"""A run in which a program of another framework calls its tools: one claim for all calls that are under way.

The framework keeps the state; the run is its journal of tool calls. It has one step that is never closed, and calls are
found by their keys forever. So keys must be unique in the thread.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Final

import msgspec

from holdfast.codec import msgpack
from holdfast.errors import LeaseLost, StoreError
from holdfast.policy import Never
from holdfast.runs.block_end import Suspended
from holdfast.runs.claim import ClaimRequest, ClaimTerms
from holdfast.runs.core import RunCore
from holdfast.runs.doubt import suspended_to_settle
from holdfast.runs.drivers import Call
from holdfast.runs.earlier_calls import Lineage
from holdfast.runs.identity import KEY_SEPARATOR
from holdfast.runs.tools import Tool, Tools
from holdfast.stores.contract_runs import Entry
from holdfast.threads import scan
from holdfast.threads.context import Context
from holdfast.threads.scan import thread_named

_OPEN_MAX: Final = 64  # entries that a claim reads; others are found by their topics
_FAILED_MAX: Final = 256  # entries after which a call that failed is not expected again
_ENDED: Final = ("done", "given_up")
_DOUBTFUL: Final = ("started", "in_doubt", "asked", "unstored")


class Found(msgspec.Struct, frozen=True):
    """The recorded result of a call that has ended."""

    result: Any


class Asked(msgspec.Struct, frozen=True):
    """A call that waits for `hf.settle`: in doubt, or not made yet because it may repeat another one."""

    number: int
    name: str
    arguments: Any
    reason: str
    may_repeat: bool


class SharedRun:
    """The run of a thread. Any Python thread may use it."""

    def __init__(self, context: Context, name: str, start: Any, lease: float) -> None:
        """`start` is the state that the thread starts with."""
        self.name: Final = name
        self._context = context
        self._start = start
        self._terms = ClaimTerms(lease=lease)
        self._lock = threading.Lock()
        self._core: RunCore | None = None
        self._inside = 0
        self._is_ending = False

    def finished(self, tool: Tool, key: str) -> Found | None:
        """The result of a call that has ended, in any process. Nothing is claimed for that."""
        store = self._context.store
        thread = thread_named(store, self.name)
        if thread is None:
            return None
        rows = scan.entries(store, thread.position.thread, topic=topic_of(tool, key))
        newest = next((row for row in reversed(list(rows)) if row.status != "late"), None)
        if newest is None or newest.status not in _ENDED or newest.result is None:
            return None
        return Found(msgpack.decode(newest.result))

    def enter(self) -> RunCore | None:
        """The run, claimed if no call is under way; None while it has to be released first. LeaseHeld."""
        with self._lock:
            if self._is_ending:
                return None
            if self._core is None:
                request = ClaimRequest(
                    self._context,
                    self.name,
                    self._terms,
                    tools=Tools(),
                    start=self._start,
                    policy=Never(),
                    effects="live",
                )
                self._core = request.enter(can_await=True)
                self._core.calls().context.journal.use_topics()
            self._inside += 1
            return self._core

    def leave(self, *, is_last: bool = False) -> None:
        """Note that a call is over, and with `is_last` that no other may start. The last one releases the run."""
        with self._lock:
            self._is_ending = self._is_ending or is_last
            self._inside -= 1
            if self._inside or self._core is None:
                return
            core, self._core, self._is_ending = self._core, None, False
            # The calls are recorded. A run that cannot be released is free when its lease expires.
            with suppress(LeaseLost, StoreError):
                _release(core)

    @property
    def is_held(self) -> bool:
        """Whether calls are under way in this process."""
        return self._core is not None

    def asked(self, question: Suspended) -> Asked | None:
        """The question to settle, after the run was released; None if it was not written, so it has to be asked again.

        Another call may have claimed the run since, so the question is looked for in the journal, not in the run.
        """
        row = question.entry
        assert row is not None  # noqa: S101 - it is a question
        number = row.number
        if not number:
            store = self._context.store
            thread = thread_named(store, self.name)
            if thread is None:
                return None
            own = thread.position.thread
            newest = scan.entries(store, own, max(0, store.last_entry(own) - _OPEN_MAX))
            same = [each.number for each in newest if (each.key, each.status) == (row.key, row.status)]
            if not same:
                return None
            number = same[-1]
        arguments = None if row.call is None else msgpack.decode(row.call)
        return Asked(number, row.name, arguments, question.reason, may_repeat=row.status == "asked")

    def seconds_until(self, wake_at: int) -> float:
        """How many seconds are left until a time on the clock of the store."""
        return max(wake_at - self._context.store.clock().now, 0) / 1000 if wake_at else 0.0

    def renew(self) -> None:
        """Reset it in the child after fork(): the thread that held the lock or the run is not there."""
        self._lock = threading.Lock()
        self._core, self._inside, self._is_ending = None, 0, False


class Making:
    """One call, from its start to its end."""

    def __init__(
        self, core: RunCore, tool: Tool, given: dict[str, Any], key: str, lineage: Lineage | None = None
    ) -> None:
        self.question: Suspended | None = None
        self.wake_at = 0  # when the call can be asked for again, on the clock of the store
        self.is_last = False  # whether no further call can be made in this claim
        self._core = core
        self._tool = tool
        self._given = given
        self._key = key
        self._lineage = lineage

    def call(self) -> Call:
        calls = self._core.calls()
        return (yield from calls.tool(self._tool, self._given, self._key, caller=None, lineage=self._lineage))

    def suspend(self, suspended: Suspended) -> None:
        """Note that a person has to decide. If the question is not about this call, it can be made in another claim."""
        self.is_last = True
        row, about, key = suspended.entry, suspended.blocked_call, topic_of(self._tool, self._key)
        if row is not None and key in (row.key, None if about is None else about.key):
            self.question = suspended
        if about is not None and about.key == key:
            self.wake_at = suspended.wake_at

    def failed(self, error: Exception) -> None:
        """Let a call that raised be made again when it is asked for again: the framework handles the error."""
        if isinstance(error, LeaseLost):
            self.is_last = True
            return
        with suppress(LeaseLost, StoreError):
            if self._core.is_open:
                journal = self._core.calls().context.journal
                journal.flush()
                journal.reopen(error)


def topic_of(tool: Tool, key: str) -> str:
    """The name of a call in the journal."""
    return f"{tool.identity}{KEY_SEPARATOR}{key}"


def _release(core: RunCore) -> None:
    core.end_calls()
    if not core.is_open:
        return
    context = core.calls().context
    context.journal.flush()
    entries, last = context.journal.entries(), context.journal.last
    if context.suspended is None:
        # A question from before stays open, whatever was called since.
        unanswered = next((row for row in entries if row.status == "in_doubt" and row.kind == "irreversible"), None)
        context.suspended = None if unanswered is None else suspended_to_settle(unanswered)
    if len(entries) > _OPEN_MAX and all(_is_over(row, last) for row in entries):
        context.lease.changed(closed=last)
    core.leave(None)


def _is_over(row: Entry, last: int) -> bool:
    """Whether a call need not be found among the open entries. A failed one keeps its idempotency key there."""
    return row.status in _ENDED or (row.status not in _DOUBTFUL and row.number < last - _FAILED_MAX)
