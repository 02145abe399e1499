"""Run: an agent's durable run, and the blocks that open it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.errors import InvalidArgument
from holdfast.policy import Policy
from holdfast.runs.arguments import checked_text
from holdfast.runs.block_end import at_end, decisive, termination, waits_in_hook_error
from holdfast.runs.call_keys import MAIN_CALLER
from holdfast.runs.calls import OnChange
from holdfast.runs.children import Child
from holdfast.runs.claim import ClaimRequest, until_free
from holdfast.runs.core import RunCore
from holdfast.runs.drivers import RUN, SCOPE, ActingThread, drive, is_async
from holdfast.runs.retry import Retry
from holdfast.signals import shield
from holdfast.types import Checkpoint, Effect, Status

if TYPE_CHECKING:
    from holdfast.aio.run import AsyncRun


class RunBase:
    """The properties of a run that this process holds. `Run` and `AsyncRun` add the verbs."""

    def __init__(self, core: RunCore, request: ClaimRequest) -> None:
        self.core = core
        self.request = request
        core.start_program()

    @property
    def state(self) -> Any:
        """The state. Change it in place or replace it; checkpoints store it."""
        return self.core.state

    @state.setter
    def state(self, state: Any) -> None:
        self.core.state = state

    @property
    def thread(self) -> str:
        """The name of its thread."""
        return self.core.thread

    @property
    def resumed(self) -> bool:
        """Whether the run was started before."""
        return self.core.resumed

    @property
    def fresh(self) -> bool:
        """Whether the state does not include the input yet. Then add the input to the state.

        It is True before the first checkpoint of this run or this turn, and after a rewind to before that checkpoint.
        Calls do not change it.
        """
        return self.core.fresh

    @property
    def attempt(self) -> int:
        """1, plus the number of claims that ended in a crash, a failure or a halt since the last checkpoint."""
        return self.core.attempt

    @property
    def age(self) -> float:
        """The age, in seconds, of the checkpoint from which the run resumed."""
        return self.core.age

    @property
    def status(self) -> Status:
        """The status of the run; after the block, the status in which the block left it."""
        return self.core.status

    @property
    def result(self) -> Any:
        """The result that the run was finished with; None before."""
        return self.core.result

    @property
    def changed(self) -> tuple[Effect, ...]:
        """Recorded model calls and reads for which the program now passes other arguments or another function.

        Usually the recorded result was returned. Also readable after the block.
        """
        return self.core.changed

    @property
    def step(self) -> int:
        """The number of the open step."""
        return self.core.step

    @contextmanager
    def scope(self, name: str) -> Generator[None]:
        """Put a name before the keys of the calls in this block: `with run.scope("reviewer"):`.

        Agents that run at the same time need a scope each, so that a resume can tell their calls apart.
        """
        token = SCOPE.set(f"{SCOPE.get()}{checked_text('the name of a scope', name)}/")
        try:
            yield
        finally:
            SCOPE.reset(token)


class Run(RunBase):
    """A run that this process holds, inside `with hf.run(…) as run`. See `docs/concepts/runs.md`."""

    def __init__(self, core: RunCore, request: ClaimRequest) -> None:
        super().__init__(core, request)
        self._entered_by = threading.current_thread()

    @property
    def aio(self) -> AsyncRun:
        """This run for asyncio: an agent framework that is async inside can be used in the block of a sync run."""
        from holdfast.aio.run import face_of  # noqa: PLC0415 - importing asyncio takes long

        return face_of(self)

    def _caller(self) -> object:
        """The thread that makes a call; MAIN_CALLER if it entered the block, or waits for the tool that is called."""
        here = threading.current_thread()
        if here is not self._entered_by:
            here = ActingThread.caller(here)
        return MAIN_CALLER if here is self._entered_by else here

    # -- steps ----------------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[int]:
        """Yield the numbers of the steps, without end. Each iteration ends the step before it."""
        if not self.core.is_open:
            return
        with self.core.in_steps():
            yield self.core.step
            while self.core.is_open:
                with shield:
                    end_step = self.core.prepare_step_end()
                    end_step()
                yield self.core.step

    def save(self) -> Checkpoint:
        """Write a checkpoint now, whatever the save policy says. Readers of the thread see it at once.

        A resumed run starts from this save only if the save is a boundary: see docs/concepts/runs.md, "Steps and
        checkpoints". Otherwise it starts from an earlier checkpoint, and the calls since then are answered from the
        journal.
        """
        with shield:
            save = self.core.prepare_save()
            return save()

    def finish(self, result: Any = None) -> None:
        """Complete the run with a result, and store the state."""
        with shield:
            finish = self.core.prepare_finish(result)
            finish()

    def halt(self, reason: str) -> None:
        """Stop the run for a reason. The state is not stored. The next `hf.run` resumes from the last boundary."""
        self.core.halt(reason)

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Report how far the run is, for `hf.progress`. It is stored with the next lease renewal or checkpoint."""
        self.core.progress(done, total, note)

    # -- calls ----------------------------------------------------------------------------------------------------

    def model(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        type: Any = None,
        on_change: OnChange = "recorded",
        retry: Retry | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call a model and record its reply, or return the recorded one. Other keyword arguments go to the function.

        `key` identifies the call among the calls of the function in this step. `type` is the class of the reply, if it
        is not plain data. If a recorded call had other arguments, its reply is returned; with `on_change="rerun"` the
        model is called again. `retry` makes a failed call again before its error is raised.
        """
        calls, caller = self.core.calls(), self._caller()
        with calls.watched("model", is_main=threading.current_thread() is self._entered_by) as watched:
            call = calls.model(
                function,
                args,
                kwargs,
                key=key,
                type=type,
                on_change=on_change,
                caller=caller,
                watched=watched,
                retry=retry,
            )
            return drive(call)

    def stream(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        final: Callable[[list[Any]], Any] | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Yield the chunks of a model call and record them at the end, or yield the recorded chunks.

        With `final`, only the whole reply is recorded: `final(chunks)`. A recorded call then yields it as its only
        chunk: `run.stream(ask, prompt, final="".join)`. If the caller stops before the end, nothing is recorded.
        """
        calls = self.core.calls()
        calls.context.require_active()
        with calls.streaming(function, args, kwargs, key=key, final=final, caller=self._caller()) as stream:
            if stream.recorded is not None:
                yield from stream.recorded
                return
            source = function(*stream.given.args, **stream.given.kwargs)
            try:
                for chunk in source:
                    yield stream.take(chunk)
            finally:
                close = getattr(source, "close", None)  # a client's stream holds a connection
                if close is not None:
                    close()
            stream.end()

    def tool(self, named: str | Callable[..., Any], args: Any = None, key: str | None = None) -> Any:
        """Call a tool and record its result, or return the recorded one.

        `named` is the function, or the name of a tool that was registered with `tools=`. `args` is a dict of its
        arguments. `key` identifies the call among the calls of the tool in this step, such as the id that the model
        gave it.
        """
        calls = self.core.calls()
        with calls.watched("tool", named) as watched:
            return drive(calls.tool(named, args, key, caller=self._caller(), watched=watched))

    def child(
        self,
        name: str,
        *,
        start: Any = None,
        type: Any = None,
        agent: str | None = None,
        policy: Policy | None = None,
        tools: Iterable[Callable[..., Any]] | None = None,
    ) -> ChildBlock:
        """Start or resume a run that belongs to this one: `with run.child("name", start=state) as child`.

        Its thread is `PARENT/name`, which only its parent can run. If the parent uses the name again in a later step,
        the child continues from its head, as a new turn. Its result is recorded in the parent's journal. If it waits,
        its parent waits; both are cancelled together. Children that run at the same time each need a Python thread and
        a name of their own.
        """
        return ChildBlock(Child(self.core, self.request, name, start, type, agent, policy, tools))

    # -- waiting --------------------------------------------------------------------------------------------------

    def wait(self, name: str, payload: Any = None, timeout: float | None = None) -> Any:
        """Ask a question and return its answer (`hf.answer`). Until there is one, the run waits without a process.

        The block ends without an error, and the step stays open. When the run resumes with the answer, the earlier
        calls of the step are answered from the journal. WaitTimedOut if there is no answer within `timeout` seconds.
        """
        return self.core.calls().wait(name, payload, timeout)

    def sleep(self, seconds: float) -> None:
        """Wait without a process: the block ends, and a worker resumes the run when the time has passed."""
        self.core.calls().sleep(seconds)


class ChildBlock:
    """The block of `run.child(…)`: claims the child, and releases it at the end."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._core: RunCore | None = None
        self._token: Token[Any] | None = None

    def __enter__(self) -> Run:
        try:
            with shield, self._child.request.observed():
                self._core = self._child.enter(can_await=False)
            run = Run(self._core, self._child.request)
            self._token = RUN.set(run)
            return run
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise

    @at_end
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with shield:
            core, self._core = self._core, None
            if core is None:
                return
            try:
                core.end_calls()
                self._child.leave(core, decisive(error))
            finally:
                self._child.request.left()
                if self._token is not None:
                    with suppress(ValueError):  # as in RunBlock
                        RUN.reset(self._token)


class RunBlock:
    """The block of `hf.run(…)`: claims the run, and releases it at the end."""

    def __init__(self, request: ClaimRequest) -> None:
        if request.on_resume is not None and is_async(request.on_resume):
            raise InvalidArgument("a sync run cannot await its on_resume; use hf.aio.run")
        self._request = request
        self._core: RunCore | None = None
        self._token: Token[Any] | None = None

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> NoReturn:
            advice = "; use `with hf.run(…) as run:`" if hasattr(Run, name) else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}")

    def __enter__(self) -> Run:
        self._request.enter_once()
        attempt = functools.partial(self._request.enter, can_await=False)
        try:
            termination.listen(self)
            with shield, self._request.observed():
                self._core = core = until_free(attempt, self._request.wait)
            run = Run(core, self._request)
            self._token = RUN.set(run)
            hook = self._request.on_resume
            if hook is not None and core.resumed and core.is_open:
                with core.in_hook():
                    hook(run)
            return run
        except BaseException as error:
            # Python calls `__exit__` only if `__enter__` has returned: not for an interrupt right after the claim.
            core_left = self._core
            if self.__exit__(type(error), error, error.__traceback__) and core_left is not None:
                raise waits_in_hook_error(core_left.thread, core_left.status) from None
            raise

    @at_end
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            with shield:
                return self._leave(error)
        finally:
            termination.unlisten(self)
            token, self._token = self._token, None
            if token is not None:
                with suppress(ValueError):  # the block is left in another context than it was entered in
                    RUN.reset(token)

    def _leave(self, error: BaseException | None) -> bool:
        core, self._core = self._core, None
        if core is None:
            return False
        try:
            core.end_calls()
            return core.leave(error)
        finally:
            self._request.left()
