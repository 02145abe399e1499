"""Children: runs on their own threads that belong to another run. They wait and are cancelled with it."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from typing import Any, Final

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import Cancelled, Conflict, InvalidArgument, LeaseLost, NotFound, Unfinished
from holdfast.policy import Policy
from holdfast.runs import call_keys
from holdfast.runs.block_end import Waiting
from holdfast.runs.calls import Calls
from holdfast.runs.claim import ClaimRequest, ClaimTerms, until_free
from holdfast.runs.context import Supervisor
from holdfast.runs.core import RunCore
from holdfast.runs.identity import Started
from holdfast.runs.record import CHILD, child_thread
from holdfast.runs.waits import cancel
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.text import quoted
from holdfast.threads.scan import thread_named

_PARENT: Final = re.compile(r"/(\d+)\.\d+$")  # in the turn of a child: when the run of its parent was created


class _ChildSupervisor:
    """The supervisor of a child. The child stops with its parent's worker, and the parent handles its failures."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def is_stopping(self) -> bool:
        return self._supervisor.is_stopping()

    def after_failure(self, row: RunRow) -> RunRow:
        return row


class Child:
    """One child in one step of its parent: claimed, and recorded in the journal of its parent."""

    def __init__(
        self,
        parent: RunCore,
        request: ClaimRequest,
        name: str,
        start: Any,
        type: Any,
        agent: str | None,
        policy: Policy | None,
        tools: Iterable[Callable[..., Any]] | None,
    ) -> None:
        if not isinstance(name, str) or not name or "/" in name or "~" in name:
            raise InvalidArgument("the name of a child must be a non-empty string without / and ~")
        context = parent.calls().context
        context.require_held()
        self._parent = parent
        self._name = name
        settings = request.settings
        self.request = ClaimRequest(
            request.context,
            child_thread(parent.thread, name, parent.branch),
            ClaimTerms(
                lease=context.lease.seconds,
                # If the last owner of both is only presumed dead, the lease of the child ends a little later than that
                # of its parent.
                wait=context.lease.seconds * 2,
                agent=agent,
                parent=parent.thread,
            ),
            tools=settings.tools.extended(tools),
            start=start,
            type=type,
            policy=settings.policy if policy is None else policy,
            supervisor=None if settings.supervisor is None else _ChildSupervisor(settings.supervisor),
            above=context.lease,
        )
        self._calls: Calls | None = None
        self._call_under_way: AbstractContextManager[Started] | None = None
        self._entry: Entry | None = None

    def enter(self, *, can_await: bool) -> RunCore:
        """Claim the child, after its entry in the parent's journal. That write fails if the parent was lost.

        A child that completed in this step is not claimed again: its parent has its result.
        """
        self._calls = calls = self._parent.calls()
        context, journal = calls.context, calls.context.journal
        context.require_active()
        self._call_under_way = calls.call_under_way(call_keys.CHILD, self._name)
        key = self._call_under_way.__enter__().key
        try:
            known = journal.find(context.step, key)
            if known is not None:
                journal.raise_again(known)
            if known is not None and known.status == "done":
                self._entry = known
                return self.request.completed(known.result)
            self._entry = known if known is not None and known.status == "started" else self._start(calls, key)
            # The turn identifies this run and turn of the parent: work for another one is not reused.
            turn = f"{self._parent.created_at}.{journal.last_invalid_number(self._entry)}"
            first = known or self._entry  # the first try
            where = f"{first.step}.{first.outside}" if first.outside else first.step
            self.request.use(f"{self._parent.thread}@{where}/{turn}", context.earlier_calls.inherited)
            core = self._claimed(turn, can_await=can_await)
            if core.is_open:
                core.calls().context.earlier_calls.parent_calls = context.earlier_calls
            return core
        except BaseException as error:
            self._call_under_way.__exit__(type(error), error, error.__traceback__)
            raise

    def _start(self, calls: Calls, key: str) -> Entry:
        thread = self.request.thread
        store = calls.context.store
        known = thread_named(store, thread)
        run = None if known is None else store.run(known.position.thread)
        last = 0 if known is None else store.last_entry(known.position.thread)
        parent = _PARENT.search("" if run is None or run.turn is None else run.turn)
        if parent is not None and int(parent[1]) != self._parent.created_at:
            raise Conflict(
                f"thread {quoted(thread)} is the child of an earlier run of {quoted(self._parent.thread)}, which was "
                "dropped; nothing was changed. Drop the child too, or give this one another name."
            )
        arguments = hashlib.sha256(thread.encode("utf-8", "surrogatepass")).digest()
        journal = calls.context.journal
        row = journal.new(calls.context.step, key, thread, "child", "started", arguments)
        return journal.write(replace(row, topic=CHILD, valid_after=last))

    def _claimed(self, turn: str, *, can_await: bool) -> RunCore:
        attempt = functools.partial(self.request.enter, can_await=can_await)
        try:
            core = until_free(attempt, self.request.wait)
        except Unfinished as busy:
            if busy.turn is not None and busy.turn.endswith(f"/{turn}"):
                raise
            # The turn of its parent has ended without it, so no other run can resume it.
            store = self.request.context.store
            thread = thread_named(store, self.request.thread)
            if thread is not None:
                with suppress(Conflict, NotFound):  # it ended meanwhile
                    cancel(store, thread, "the turn of its parent that it belonged to has ended")
            core = until_free(attempt, self.request.wait)
        context = self._parent.calls().context
        try:
            # A claim of the parent by another process, or a cancellation, may have missed the child.
            context.lease.confirm()
            context.journal.poll(at_once=True)
            context.require_active()
        except BaseException as error:
            with suppress(Cancelled):
                if isinstance(error, Cancelled) and core.is_open:
                    core.halt(str(error))
            # Its own lease is not lost: release it for the worker that has the parent.
            core.leave(None if isinstance(error, LeaseLost) else error)
            raise
        return core

    def leave(self, core: RunCore, error: BaseException | None) -> None:
        """Release the child and record its result. Waiting if it waits: then its parent waits too."""
        if self._call_under_way is None or self._entry is None or self._calls is None:
            return
        context, row = self._calls.context, self._entry
        try:
            core.leave(error)
            if core.status == "completed" and row.status != "done":
                context.journal.end(replace(row, status="done", result=msgpack.encode(core.result)))
            elif core.status == "failed" and isinstance(error, Exception):
                context.journal.fail(row, error)
            if core.status in ("waiting", "queued") and (error is None or isinstance(error, Waiting)):
                raise context.suspend(core.suspension_of_parent(f"its child {self._name} waits"))
        finally:
            self._call_under_way.__exit__(None, None, None)
