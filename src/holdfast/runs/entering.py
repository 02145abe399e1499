"""Entering a run: everything that is needed to claim one and go on with it, for sync and async blocks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any

from msgspec.structs import replace

from holdfast.errors import Conflict, InvalidArgument, LeaseLost, NotFound, StoreError
from holdfast.observer import RunObservation
from holdfast.policy import Policy
from holdfast.runs.answers import cancel
from holdfast.runs.claiming import Terms, claim
from holdfast.runs.core import Keeper, RunCore
from holdfast.runs.guards.limits import Guard, checked_guards
from holdfast.runs.journal import text_of
from holdfast.runs.lease import Lease
from holdfast.runs.leaving import given_back, released
from holdfast.runs.past import Effects, checked_effects
from holdfast.runs.tools import Tools
from holdfast.stores.running import RunRow
from holdfast.threads.context import Session
from holdfast.threads.thread import Thread, require_compatible, saver_of


class Draining:
    """The keeper of a child: it ends with its parent's worker, and what it fails of is its parent's to decide."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def is_stopping(self) -> bool:
        return self._keeper.is_stopping()

    def after_failure(self, row: RunRow) -> RunRow:
        return row


class Claiming:
    """A run to be claimed, once."""

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
        schema_version: int | None = None,
        guards: Iterable[Guard] = (),
        on_resume: Callable[[Any], Any] | None = None,
    ) -> None:
        """`expect` is the record that the run must still have: a worker decided by it."""
        if not isinstance(policy, Policy):
            raise InvalidArgument("policy must be a holdfast.Policy")
        self._session = session
        self._thread = Thread(session, name, type, schema_version)
        self._tools = tools
        self._policy = policy
        self._terms = terms
        self._start = start
        self._has_start = has_start
        self._effects: Effects | None = checked_effects(effects)
        self._keeper = keeper
        self._expect = expect
        self._guards = checked_guards(guards)
        if on_resume is not None and not callable(on_resume):
            raise InvalidArgument("on_resume must be a function of the run")
        self.on_resume = on_resume
        self._entered = False
        self._observation: RunObservation | None = None
        self._lease: Lease | None = None

    @property
    def thread(self) -> str:
        return self._thread.name

    @property
    def wait(self) -> float:
        """For how many seconds to try if another worker holds the run."""
        return self._terms.wait

    def is_failing(self) -> bool:
        """Whether the lease could not be renewed the last time, because of the store."""
        return self._lease is not None and self._lease.is_failing

    def of_child(
        self,
        thread: str,
        terms: Terms,
        start: Any,
        type: Any,
        policy: Policy | None,
        tools: Iterable[Callable[..., Any]] | None,
    ) -> Claiming:
        """A child of this run to be claimed: with its tools and policy, unless it has its own."""
        return Claiming(
            self._session,
            thread,
            self._tools if tools is None else Tools(tools, self._tools),
            self._policy if policy is None else policy,
            terms,
            start=start,
            has_start=start is not None,
            type=type,
            keeper=None if self._keeper is None else Draining(self._keeper),
        )

    def is_for(self, turn: str, effects: Effects) -> None:
        """Say what a child is claimed for, which its parent's journal knows."""
        self._terms = replace(self._terms, turn=turn)
        self._effects = effects

    def known(self) -> tuple[RunRow | None, int]:
        """The run as it is, and the newest entry of its journal; None and 0 if there is none yet."""
        store = self._session.store
        thread = store.thread(self._thread.name)
        if thread is None:
            return None, 0
        return store.run(thread.position.thread), store.last_effect(thread.position.thread)

    def halt(self, reason: str) -> None:
        """Halt what the run is doing, whoever began it."""
        thread = self._session.store.thread(self._thread.name)
        if thread is not None:
            with suppress(Conflict, NotFound):  # it ended meanwhile
                cancel(self._session.store, thread, reason)

    def answered(self, result: bytes | None) -> RunCore:
        """The run as completed with a result that its parent has, whatever became of it since."""
        row = RunRow(thread=0, status="completed", fence=0, result=result)
        return RunCore(self._session, self._thread, None, row, self._tools, self._policy, resumed=True)

    def enter_once(self) -> None:
        """InvalidArgument the second time: a block is one claim."""
        if self._entered:
            raise InvalidArgument("a run's block cannot be entered twice; call hf.run again")
        self._entered = True

    @contextmanager
    def observed(self) -> Generator[None]:
        """Around all of entering, where the block stands: lets whoever observes the handle know of this claim."""
        observer = self._session.observer
        if observer is None:
            yield
            return
        self._observation = observation = observer.running(self._thread.name, self._terms.agent)
        try:
            yield
        except BaseException as error:
            self._observation = None
            observation.refused(error)
            raise

    def left(self) -> None:
        """The block has ended. Called where it stands, whatever became of the run."""
        if self._observation is not None:
            self._observation.left()

    def _refused(self, row: RunRow, error: BaseException) -> RunRow:
        """The record of a run that was claimed and could not be entered."""
        if not isinstance(error, Exception):
            return given_back(row, is_queued=row.handler is not None)
        failed = released(row, "failed", text_of(error, self._session.redaction))
        return failed if self._keeper is None else self._keeper.after_failure(failed)

    def enter(self, *, can_await: bool, wait: float) -> RunCore:
        """Claim the run, trying for `wait` seconds."""
        store = self._session.store
        observation = self._observation
        trace = None if observation is None else observation.trace
        claimed = claim(
            store,
            saver_of(self._thread),
            self._thread.name,
            self._start,
            replace(self._terms, wait=wait, trace=trace),
            has_start=self._has_start,
            check=lambda: require_compatible(self._thread),
            expect=self._expect,
        )
        self._lease = claimed.lease
        try:
            core = RunCore(
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
                observation=observation,
                guards=self._guards,
            )
            if observation is not None:
                observation.claimed(before=claimed.before, resumed=core.resumed, step=core.step, attempt=core.attempt)
            return core
        except BaseException as error:
            if claimed.lease is not None:
                claimed.lease.stop()
                with suppress(LeaseLost, StoreError):
                    store.update_run(self._refused(claimed.lease.row, error))
            raise
