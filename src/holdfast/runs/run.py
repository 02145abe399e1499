"""A run: one durable execution on a thread, that goes on where the last process left it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

from holdfast.policy import Policy
from holdfast.records import Checkpoint
from holdfast.runs.calls import OnChange, this_caller, watched_stream
from holdfast.runs.children import Child
from holdfast.runs.core import RunCore
from holdfast.runs.face import RunFace
from holdfast.runs.invoking import drive
from holdfast.runs.leaving import decisive


class Run(RunFace):
    """A run that this process holds, inside `with hf.run(…) as run`. See `docs/runs.md`."""

    # -- steps ------------------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[int]:
        """The numbers of the steps to do, without end. Each turn closes the step before it."""
        if self._core.is_open:
            yield self._core.step
        while self._core.is_open:
            self._core.closing()()
            yield self._core.step

    def save(self) -> Checkpoint:
        """Close the step here, whatever the policy: what was called so far is never answered from the journal again."""
        return self._core.saving()()

    def finish(self, result: Any = None) -> None:
        """Complete the run with a result, and store the state."""
        self._core.finishing(result)()

    def halt(self, reason: str) -> None:
        """Stop the run for a reason. The state is not stored: run again, it goes on from its last checkpoint."""
        self._core.halt(reason)

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Say how far the run is, for `hf.progress`. It costs no write: the next renewal or checkpoint stores it."""
        self._core.progress(done, total, note)

    # -- calls ------------------------------------------------------------------------------------------------------

    def model(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        type: Any = None,
        on_change: OnChange = "recorded",
        **kwargs: Any,
    ) -> Any:
        """Call a model and record its reply, or give the recorded one. Keyword arguments go to the function."""
        caller = this_caller()
        return drive(
            self._core.calling(
                lambda calls: calls.model(
                    function, args, kwargs, key=key, type=type, on_change=on_change, caller=caller
                )
            ),
            self._core.observed("model"),
        )

    def stream(
        self, function: Callable[..., Any], /, *args: Any, key: str | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """The chunks of a model call as they come, recorded at the end, or those recorded. Left half-way: neither."""
        streaming = self._core.calls().streaming(function, args, kwargs, key=key, caller=this_caller())
        with watched_stream(streaming, self._core.observed("model", is_stream=True)) as stream:
            if stream.recorded is not None:
                yield from stream.recorded
                return
            for chunk in function(*args, **kwargs):
                yield stream.take(chunk)
            stream.end()

    def tool(self, named: str | Callable[..., Any], args: Any = None, key: str | None = None) -> Any:
        """Call a tool by name or function with arguments by name, or give the recorded result."""
        caller = this_caller()
        call = self._core.calling(lambda calls: calls.tool(named, args, key, caller=caller))
        return drive(call, self._core.observed("tool", named))

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
        """A run of its own that belongs to this one: `with run.child("name", start=state) as child`.

        Its thread is `PARENT/name`, claimed only through its parent; in another step of the parent it goes on from its
        head with another turn. Its result is journaled here. If it waits, its parent does; cancelled is both. Children
        beside each other need threads, and names of their own.
        """
        return ChildBlock(Child(self._core, self._claiming, name, start, type, agent, policy, tools))

    # -- waiting ----------------------------------------------------------------------------------------------------

    def wait(self, name: str, payload: Any = None, timeout: float | None = None) -> Any:
        """Ask a question and give its answer (`hf.answer`). Until there is one the run waits, without a process.

        The block ends there, silently, and the step stays open: run again with an answer, its calls are answered from
        the journal and this one with it. WaitTimedOut if nobody answers within `timeout` seconds.
        """
        return self._core.wait(name, payload, timeout)

    def sleep(self, seconds: float) -> None:
        """Wait for so long without a process: the block ends, and a worker goes on when the time has passed."""
        self._core.sleep(seconds)


class ChildBlock:
    """What `run.child(…)` gives: `with` it, the child is claimed, and given back at the end."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._core: RunCore | None = None

    def __enter__(self) -> Run:
        with self._child.claiming.observed():
            self._core = self._child.enter(can_await=False)
        return Run(self._core, self._child.claiming)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._core is not None:
            try:
                self._core.end_calls()
                self._child.leave(self._core, decisive(error))
            finally:
                self._child.claiming.left()
