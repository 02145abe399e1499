"""The block of a run: claims it when it is entered, gives it back when it is left."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from holdfast.errors import InvalidArgument, LeaseLost, StoreError
from holdfast.policy import Policy
from holdfast.runs.claiming import Terms, claim
from holdfast.runs.core import Keeper, RunCore, released
from holdfast.runs.failures import text_of
from holdfast.runs.past import Effects, checked_effects
from holdfast.runs.run import Run
from holdfast.runs.signals import termination
from holdfast.runs.tools import Tools
from holdfast.stores.running import RunRow
from holdfast.threads.session import Session
from holdfast.threads.thread import Thread, saver_of


class Claiming:
    """Everything that is needed to claim a run and go on with it, for sync and async blocks."""

    def __init__(
        self,
        session: Session,
        name: str,
        tools: Tools,
        policy: Policy,
        terms: Terms,
        *,
        start: Any,
        has_start: bool,
        type: Any,
        effects: Effects | None = None,
        keeper: Keeper | None = None,
        expect: RunRow | None = None,
    ) -> None:
        """`expect` is the record that the run must still have: a worker decided by it."""
        if not isinstance(policy, Policy):
            raise InvalidArgument("policy must be a holdfast.Policy")
        self._session = session
        self._thread = Thread(session, name, type)
        self._tools = tools
        self._policy = policy
        self._terms = terms
        self._start = start
        self._has_start = has_start
        self._effects: Effects | None = checked_effects(effects)
        self._keeper = keeper
        self._expect = expect
        self._entered = False

    @property
    def wait(self) -> float:
        """For how many seconds to try if another worker holds the run."""
        return self._terms.wait

    def enter_once(self) -> None:
        """InvalidArgument the second time: a block is one claim."""
        if self._entered:
            raise InvalidArgument("a run's block cannot be entered twice; call hf.run again")
        self._entered = True

    def enter(self, *, can_await: bool, wait: float) -> RunCore:
        """Claim the run, trying for `wait` seconds."""
        store = self._session.store
        claimed = claim(
            store,
            saver_of(self._thread),
            self._thread.name,
            self._start,
            replace(self._terms, wait=wait),
            has_start=self._has_start,
            expect=self._expect,
        )
        try:
            return RunCore(
                self._session,
                self._thread,
                claimed.lease,
                claimed.row,
                self._tools,
                self._policy,
                resumed=claimed.resumed,
                effects=self._effects,
                can_await=can_await,
                keeper=self._keeper,
            )
        except BaseException as error:
            if claimed.lease is not None:
                claimed.lease.stop()
                with suppress(LeaseLost, StoreError):
                    row = released(claimed.lease.row, "failed", text_of(error))
                    store.update_run(row if self._keeper is None else self._keeper.after_failure(row))
            raise


class RunBlock:
    """What `hf.run(…)` gives: `with` it, the run is claimed, and given back at the end."""

    def __init__(self, claiming: Claiming) -> None:
        self._claiming = claiming
        self._core: RunCore | None = None

    def __enter__(self) -> Run:
        self._claiming.enter_once()
        self._core = self._claiming.enter(can_await=False, wait=self._claiming.wait)
        termination.listen()
        return Run(self._core)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._core is None:
            return False
        with termination.deferred():
            return self._core.leave(error)
