"""Children: runs on threads of their own that belong to another run, and live, wait and are cancelled with it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from typing import Any

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import Cancelled, Conflict, InvalidArgument, Unfinished
from holdfast.policy import Policy
from holdfast.runs.calls import Calls
from holdfast.runs.claiming import Terms
from holdfast.runs.core import RunCore
from holdfast.runs.entering import Claiming
from holdfast.runs.family import CHILD_MARK, thread_of
from holdfast.runs.tool_calls import Parked
from holdfast.stores.running import EffectRow
from holdfast.text import shown

CHILD = "run.child"
_PARENT = re.compile(r"/(\d+)\.\d+$")  # in the turn of a child: which run of its parent's thread began it


class Child:
    """One child in one step of its parent: claimed, and written into the journal of its parent."""

    def __init__(
        self,
        parent: RunCore,
        claiming: Claiming,
        name: str,
        start: Any,
        type: Any,
        agent: str | None,
        policy: Policy | None,
        tools: Iterable[Callable[..., Any]] | None,
    ) -> None:
        if not isinstance(name, str) or not name or "/" in name or "~" in name:
            raise InvalidArgument("a child is named by a text that is not empty and has neither / nor ~ in it")
        self._parent = parent
        self._name = name
        self.claiming = claiming.of_child(
            thread_of(parent.thread, name, parent.branch),
            Terms(
                lease=parent.lease_seconds,
                # Its last owner may have been taken for dead with its parent's: its lease ends a little later, then.
                wait=parent.lease_seconds * 2,
                agent=agent,
                parent=parent.thread,
            ),
            start,
            type,
            policy,
            tools,
        )
        self._calls: Calls | None = None
        self._making: AbstractContextManager[str] | None = None
        self._row: EffectRow | None = None

    def enter(self, *, can_await: bool) -> RunCore:
        """Claim the child. Its parent's intent is the fence check: who lost the parent gets no child either.

        A child that completed in this step is not claimed again: its parent has its result.
        """
        self._calls = calls = self._parent.calls()
        self._making = calls.keys.making(CHILD, self._name, None)
        key = self._making.__enter__()
        try:
            known = calls.journal.find(calls.step, key)
            if known is not None:
                calls.recorder.raise_again(known)
            if known is not None and known.status == "done":
                self._row = known
                return self.claiming.answered(known.result)
            self._row = known if known is not None and known.status == "begun" else self._begin(calls, key)
            # Another turn of the parent, or another parent of its name, has nothing to do with what this child did.
            turn = f"{self._parent.created_at}.{calls.journal.since(calls.step, key)}"
            self.claiming.is_for(f"{self._parent.thread}@{calls.step}/{turn}", calls.past.effects())
            return self._claimed(turn, can_await=can_await)
        except BaseException as error:
            self._making.__exit__(type(error), error, error.__traceback__)
            raise

    def _begin(self, calls: Calls, key: str) -> EffectRow:
        thread = self.claiming.thread
        run, last = self.claiming.known()
        parent = _PARENT.search("" if run is None or run.turn is None else run.turn)
        if parent is not None and int(parent[1]) != self._parent.created_at:
            raise Conflict(
                f"thread {shown(thread)} is the child of a run that {shown(self._parent.thread)} had before it was "
                "dropped; drop the child too, or give this one another name"
            )
        arguments = hashlib.sha256(thread.encode("utf-8", "surrogatepass")).digest()
        row = calls.journal.new(calls.step, key, thread, "child", "begun", arguments)
        return calls.journal.write(replace(row, mark=CHILD_MARK, since=last))

    def _claimed(self, turn: str, *, can_await: bool) -> RunCore:
        try:
            core = self.claiming.enter(can_await=can_await, wait=self.claiming.wait)
        except Unfinished as busy:
            if busy.turn is not None and busy.turn.endswith(f"/{turn}"):
                raise
            # Its parent's turn ended without it, and nobody else can go on with it.
            self.claiming.halt("the turn of its parent that it belonged to has ended")
            core = self.claiming.enter(can_await=can_await, wait=self.claiming.wait)
        try:
            self._parent.calls()  # whoever cancelled the parent meanwhile may not have found the child
        except BaseException as error:
            with suppress(Cancelled):
                if isinstance(error, Cancelled) and core.is_open:
                    core.halt(str(error))
            core.leave(error)
            raise
        return core

    def leave(self, core: RunCore, error: BaseException | None) -> None:
        """Give the child back, and record what came of it. Parked if it waits: then so does its parent."""
        if self._making is None or self._row is None or self._calls is None:
            return
        calls, row = self._calls, self._row
        try:
            core.leave(error)
            if core.status == "completed" and row.status != "done":
                calls.recorder.end(replace(row, status="done", result=msgpack.encode(core.result)))
            elif core.status == "failed" and isinstance(error, Exception):
                calls.recorder.fail(row, error)
            if core.status in ("waiting", "queued") and (error is None or isinstance(error, Parked)):
                raise calls.park(core.wait_of_parent(f"its child {self._name} waits"))
        finally:
            self._making.__exit__(None, None, None)
