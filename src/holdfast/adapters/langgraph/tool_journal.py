"""The journal of a graph's tools: a run that all calls under way in this process share.

The graph has its own state; the run is a journal of calls. It has one step that is never closed, and calls are found by
their keys forever. So keys must be unique in the thread.
"""

from __future__ import annotations

import threading
import time
import weakref
from contextlib import suppress
from functools import partial
from typing import Any, Final

from holdfast import forksafe
from holdfast.adapters.langgraph.checkpoint_format import journal_name
from holdfast.adapters.seam_modes import Mode
from holdfast.codec import msgpack
from holdfast.errors import LeaseHeld, LeaseLost, StoreError
from holdfast.policy import Never
from holdfast.runs.block_end import Waiting
from holdfast.runs.claim import ClaimRequest, ClaimTerms
from holdfast.runs.core import RunCore
from holdfast.runs.doubt import suspended_to_settle
from holdfast.runs.earlier_calls import Lineage
from holdfast.runs.identity import KEY_SEPARATOR
from holdfast.runs.tool_calls import digest_of
from holdfast.runs.tools import Tool, Tools
from holdfast.stores.contract_runs import Entry
from holdfast.threads import scan
from holdfast.threads.context import Context
from holdfast.threads.scan import thread_named

_OPEN_MAX: Final = 64  # entries that a claim reads; others are found by their topics
_FAILED_MAX: Final = 256  # entries after which a call that failed is not expected again
_ENDED: Final = ("done", "given_up")
_DOUBTFUL: Final = ("started", "in_doubt", "asked", "unstored")
_POLL_SECONDS: Final = 0.005


class Unsettled(Exception):
    """A call waits for `hf.settle`: it is in doubt, or not made yet because it may repeat another one."""

    def __init__(self, number: int, entry: Entry, reason: str) -> None:
        super().__init__(reason)
        self.number: Final = number
        self.name: Final = entry.name
        self.arguments: Final = None if entry.call is None else msgpack.decode(entry.call)
        self.reason: Final = reason
        self.may_repeat: Final = entry.status == "asked"


class ToolJournal:
    """Makes the tool calls of one LangGraph thread. It may be used from any Python thread and event loop.

    Concurrent calls in this process share one claim of the run. So parallel calls of LangGraph need not wait for each
    other, and another process is rejected before it acts.
    """

    def __init__(self, context: Context, thread_id: str, lease: float) -> None:
        self.name: Final = journal_name(thread_id)
        self._context = context
        self._start = {"thread": thread_id}
        self._terms = ClaimTerms(lease=lease)
        self._lock = threading.Lock()
        self._shared: RunCore | None = None
        self._inside = 0
        self._is_ending = False

    async def call(
        self, mode: Mode, tool: Tool, given: dict[str, Any], key: str, wait: float, lineage: Lineage | None = None
    ) -> Any:
        """Return the recorded result of a call, or make it now. Unsettled if its outcome is unknown.

        If an earlier call may still act, it waits until that has ended, without holding the run.

        LeaseHeld if another process keeps calling tools of this thread for longer than `wait` seconds.
        """
        topic = f"{tool.identity}{KEY_SEPARATOR}{key}"
        while True:
            recorded = await mode.work(partial(self._recorded, topic, given))
            if recorded is not None:
                return msgpack.decode(recorded)
            shared, is_last = await self._entered(mode, wait), False
            try:
                return await mode.drive(shared.calls().tool(tool, given, key, caller=None, lineage=lineage))
            except Waiting as raised:
                suspended, is_last = raised, True
            except LeaseLost:
                is_last = True
                raise
            except Exception as error:
                await mode.work(partial(_reopen, shared, error))
                raise
            finally:
                await mode.work(partial(self.leave, is_last=is_last))
            await mode.poll(lambda: self._shared is None)  # calls under way cannot be settled
            row, about = suspended.entry, suspended.blocked_call
            is_about = about is not None and about.key == topic
            if row is not None and (row.key == topic or is_about):
                unsettled = await mode.work(partial(self.unsettled, suspended))
                if unsettled is not None:
                    raise unsettled
            if is_about:
                await mode.pause(await mode.work(partial(self._seconds_until, suspended.wake_at)))

    def _recorded(self, topic: str, given: dict[str, Any]) -> bytes | None:
        """The result of a call that has ended, in any process. Nothing is claimed for that.

        None also if that call had other arguments. The run decides what follows from that.
        """
        store = self._context.store
        thread = thread_named(store, self.name)
        if thread is None:
            return None
        rows = scan.entries(store, thread.position.thread, topic=topic)
        newest = next((row for row in reversed(list(rows)) if row.status != "late"), None)
        if newest is None or newest.status not in _ENDED:
            return None
        same = digest_of(self._context.redaction.arguments(given))
        return newest.result if newest.arguments == same else None

    async def _entered(self, mode: Mode, wait: float) -> RunCore:
        """Enter the run. If the caller is cancelled meanwhile, the run is left again."""
        deadline = time.monotonic() + wait
        while True:
            entered: list[RunCore | None] = []
            try:
                await mode.work(lambda: entered.append(self.enter()))  # noqa: B023 - called at once
            except LeaseHeld:
                if time.monotonic() >= deadline:
                    raise
            except BaseException:
                if any(entered):
                    await mode.work(self.leave)
                raise
            if entered and entered[0] is not None:
                return entered[0]
            await mode.pause(_POLL_SECONDS)

    def enter(self) -> RunCore | None:
        """The run, claimed if no call is under way; None while it has to be released first. LeaseHeld."""
        with self._lock:
            if self._is_ending:
                return None
            if self._shared is None:
                request = ClaimRequest(
                    self._context,
                    self.name,
                    self._terms,
                    tools=Tools(),
                    start=self._start,
                    policy=Never(),
                    effects="live",
                )
                self._shared = request.enter(can_await=True)
                self._shared.calls().context.journal.use_topics()
            self._inside += 1
            return self._shared

    def leave(self, *, is_last: bool = False) -> None:
        """Note that a call is over, and with `is_last` that no other may start. The last one releases the run."""
        with self._lock:
            self._is_ending = self._is_ending or is_last
            self._inside -= 1
            if self._inside or self._shared is None:
                return
            shared, self._shared, self._is_ending = self._shared, None, False
            # The calls are recorded. A run that cannot be released is free when its lease expires.
            with suppress(LeaseLost, StoreError):
                _release(shared)

    def unsettled(self, question: Waiting) -> Unsettled | None:
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
        return Unsettled(number, row, question.reason)

    def _seconds_until(self, wake_at: int) -> float:
        """How many seconds are left until a time on the clock of the store."""
        return max(wake_at - self._context.store.clock().now, 0) / 1000 if wake_at else 0.0

    def renew(self) -> None:
        """Reset it in the child after fork(): the thread that held the lock or the run is not there."""
        self._lock = threading.Lock()
        self._shared, self._inside, self._is_ending = None, 0, False


def _reopen(shared: RunCore, error: Exception) -> None:
    """Let a call that raised be made again when it is asked for again: the framework handles the error."""
    with suppress(LeaseLost, StoreError):
        if shared.is_open:
            journal = shared.calls().context.journal
            journal.flush()
            journal.reopen(error)


def _release(shared: RunCore) -> None:
    shared.end_calls()
    if not shared.is_open:
        return
    context = shared.calls().context
    context.journal.flush()
    entries, last = context.journal.entries(), context.journal.last
    if context.suspended is None:
        # A question from before stays open, whatever was called since.
        unanswered = next((row for row in entries if row.status == "in_doubt" and row.kind == "irreversible"), None)
        context.suspended = None if unanswered is None else suspended_to_settle(unanswered)
    if len(entries) > _OPEN_MAX and all(_is_over(row, last) for row in entries):
        context.lease.changed(closed=last)
    shared.leave(None)


def _is_over(row: Entry, last: int) -> bool:
    """Whether a call need not be found among the open entries. A failed one keeps its idempotency key there."""
    return row.status in _ENDED or (row.status not in _DOUBTFUL and row.number < last - _FAILED_MAX)


class _Journals:
    """The journals of all handles. Wrapped tools of one thread share a journal, so they share the claim."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._journals: weakref.WeakValueDictionary[tuple[int, str], ToolJournal] = weakref.WeakValueDictionary()

    def of(self, context: Context, thread_id: str, lease: float) -> ToolJournal:
        """The journal of a thread. It exists as long as a call uses it."""
        with self._lock:
            place = (id(context), thread_id)
            journal = self._journals.get(place)
            if journal is None:
                journal = self._journals[place] = ToolJournal(context, thread_id, lease)
            return journal

    def renew(self) -> None:
        """Replace the locks after fork(), in the child."""
        self._lock = threading.Lock()
        for journal in list(self._journals.values()):
            journal.renew()


journals: Final = _Journals()
forksafe.register(in_child=journals.renew)
