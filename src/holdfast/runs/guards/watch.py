"""The watch that guards keep over one run: what it has spent and said, and whether the next call may be made."""

from __future__ import annotations

import threading
from typing import Any, TypeAlias

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import Halted, InvalidArgument
from holdfast.runs.guards.limits import Budget, Guard, LoopGuard
from holdfast.runs.guards.replies import answer_of
from holdfast.runs.guards.usage import cache_written, counted, model_named
from holdfast.runs.lease import local_seconds
from holdfast.stores.contract import Store
from holdfast.stores.running import EffectRow, RunRow
from holdfast.types import Usage

_PAGE = 500
_CALLS = ("model", "read", "idempotent", "irreversible")
_ANSWER = ""  # no tool has this name

_Thing: TypeAlias = tuple[str, bytes]  # a tool and the digest of its arguments, or an answer


class Watch:
    """Counts for the guards of one run. All of it is known from the journal: after a crash nothing is counted anew."""

    def __init__(self, guards: tuple[Guard, ...], store: Store, row: RunRow) -> None:
        self._loop = next((guard for guard in guards if isinstance(guard, LoopGuard)), None)
        self._budget = next((guard for guard in guards if isinstance(guard, Budget)), None)
        self._branch = row.branch
        self._lock = threading.Lock()
        self._steps: set[tuple[int, int]] = set()
        self._tokens = 0
        self._cost = 0.0
        self._held = row.held  # ms, by claims before this one
        self._since = local_seconds()
        self._things: dict[tuple[int, str], _Thing] = {}  # by step and key: a call that is retried is one
        self._blind: str | None = None  # why what was spent cannot be told
        self._failure: Exception | None = None  # of the user's function
        self.halted: str | None = None
        if guards:
            self._read(store, row)

    @property
    def is_off(self) -> bool:
        """Whether nobody watches: then nothing is counted or written."""
        return self._loop is None and self._budget is None

    def enter(self, row: EffectRow) -> None:
        """Let a call be made. Halted if a guard forbids it: nothing is called or written then."""
        if self.is_off:
            return
        with self._lock:
            if self._failure is not None:
                raise InvalidArgument(
                    f"the Budget's usage= cannot tell what a recorded reply cost: {type(self._failure).__name__}; "
                    "mend it, and run again"
                ) from self._failure
            reason = self._over(row) or self._circling()
            if reason is not None:
                self.halted = reason
                raise Halted(f"{reason}; all that was done is kept, and hf.run with other guards goes on")
            self._note(row)

    def spent(self, row: EffectRow, reply: bytes) -> EffectRow:
        """Count what a model replied; its entry with what it cost, to be stored with it."""
        if self.is_off:
            return row
        plain = msgpack.decode(reply)
        with self._lock:
            row = replace(row, usage=self._count(row, plain))
            self._hear(row, plain)
            return row

    def stamp(self, row: EffectRow) -> EffectRow:
        """An entry with how long the run was held by then, for those who resume it."""
        return row if self._budget is None else replace(row, held=self._milliseconds())

    # -- what was so far --------------------------------------------------------------------------------------------

    def _read(self, store: Store, run: RunRow) -> None:
        after = run.closed
        while page := store.effects(run.thread, after=after, limit=_PAGE):
            for row in page:
                self._held = max(self._held, row.held)
                if row.kind in _CALLS:
                    self._reread(row)
            after = page[-1].number

    def _reread(self, row: EffectRow) -> None:
        if row.status != "late":
            self._note(row)
        if row.kind == "model" and row.result is not None:
            plain = msgpack.decode(row.result)
            self._count(row, plain)
            if row.status != "late":
                self._hear(row, plain)

    def _note(self, row: EffectRow) -> None:
        """A call is made."""
        self._steps.add((row.branch, row.step))
        if row.kind != "model" and not row.matches:
            self._keep(row, (row.name, row.arguments))

    def _hear(self, row: EffectRow, reply: Any) -> None:
        answer = None if self._loop is None else answer_of(reply)
        if answer is not None:
            self._keep(row, (_ANSWER, answer))

    def _keep(self, row: EffectRow, thing: _Thing) -> None:
        # What a branch that was abandoned did is done again with reason.
        if self._loop is None or row.branch != self._branch:
            return
        at = (row.step, row.key)
        if self._things.get(at) != thing:
            self._things.pop(at, None)
            self._things[at] = thing
        while len(self._things) > self._loop.window:
            del self._things[next(iter(self._things))]

    def _count(self, row: EffectRow, reply: Any) -> Usage | None:
        budget = self._budget
        if budget is None:
            return row.usage
        try:
            usage = row.usage if row.usage is not None else _said_by(budget, reply)
            if usage is None:
                if budget.usage is None and (budget.tokens is not None or budget.cost is not None):
                    self._blind = f"the budget cannot be kept: {row.name} does not say its tokens; pass usage="
                return None
            # Who counts in another way may price in another way, too.
            written = cache_written(reply) if budget.usage is None else 0
            cost = budget.cost_of(usage, model_named(reply), written)
            if cost is None and row.usage is not None and budget.usage is not None:
                # Counted when nobody knew, or asked, what it cost.
                known = _said_by(budget, reply)
                cost = 0.0 if known is None else budget.cost_of(known, model_named(reply))
        except Exception as failure:  # noqa: BLE001 - the user's function; the reply is paid for and recorded first
            self._failure = failure
            return None
        if cost is None and budget.cost is not None:
            self._blind = _no_price(row, model_named(reply))
        self._tokens += usage.total or usage.input + usage.output
        self._cost += cost or 0.0
        return usage if cost is None else replace(usage, cost=cost)

    # -- what may be ------------------------------------------------------------------------------------------------

    def _over(self, row: EffectRow) -> str | None:
        budget = self._budget
        if budget is None:
            return None
        if self._blind is not None:
            return self._blind
        steps = len(self._steps | {(row.branch, row.step)})
        if budget.steps is not None and steps > budget.steps:
            return f"the budget of {budget.steps} steps is spent: the next call is in step {steps} of this run"
        seconds = self._milliseconds() / 1000
        for what, amount, limit in (
            ("tokens", self._tokens, budget.tokens),
            ("cost", round(self._cost, 9), budget.cost),  # sums of floats end in noise
            ("seconds", round(seconds, 3), budget.seconds),
        ):
            if limit is not None and amount >= limit:
                return f"the budget of {limit} {what} is spent: {amount}, {round(amount - limit, 9)} over it"
        return None

    def _circling(self) -> str | None:
        if self._loop is None:
            return None
        things = list(self._things.values())
        for thing in dict.fromkeys(things):
            times = things.count(thing)
            if times >= self._loop.repeats:
                name, _ = thing
                what = (
                    "the model gave the same answer"
                    if name == _ANSWER
                    else f"{name} was called with the same arguments"
                )
                return f"a loop: {what} {times} times within the last {self._loop.window} calls"
        return None

    def _milliseconds(self) -> int:
        return self._held + round((local_seconds() - self._since) * 1000)


def _said_by(budget: Budget, reply: Any) -> Usage | None:
    usage = (budget.usage or counted)(reply)
    if usage is not None and not isinstance(usage, Usage):
        raise InvalidArgument("usage= must give a holdfast.Usage or None")
    return usage


def _no_price(row: EffectRow, model: str | None) -> str:
    what = (
        f"what {row.name} replied, no model is named"
        if model is None
        else f"model {model!r} that {row.name} replied with"
    )
    return (
        f"the budget cannot be kept: there is no price for {what}; give prices= for it, or a usage= that gives the cost"
    )
