"""The protocols by which other code takes part in what a handle does: Observer and Interceptor.

A handle has neither by default. An observer (for example, tracing) gets names, numbers and classes of errors. It never
gets a state, arguments, a result or a message. An interceptor (the crash drill) replaces the functions that runs call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from holdfast.runs.tools import Tool

CallKind = Literal["model", "tool"]


class Observation(Protocol):
    """One operation in progress."""

    def update(self, *, step: int | None = None, replayed: bool | None = None) -> None:
        """Add what became known during the operation: its step, and whether it was replayed from the journal."""
        ...


Observed: TypeAlias = AbstractContextManager[Observation]


class RunObservation(Protocol):
    """One claim of a run, and the calls in its block. Created in the caller's context when the block is entered."""

    @property
    def trace(self) -> str | None:
        """The W3C traceparent to store with the run, so that its next claim can link to this one."""
        ...

    def claimed(self, *, before: str | None, resumed: bool, step: int, attempt: int) -> None:
        """Note that the run is claimed. `before` is the trace stored by its previous claim."""
        ...

    def refused(self, error: BaseException) -> None:
        """Note that the run could not be claimed. This is the last call."""
        ...

    def calling(self, kind: CallKind, name: str | None, *, step: int, is_stream: bool) -> Observed:
        """Observe a call in the block. `name` is the tool's name. A stream is left and entered again between chunks."""
        ...

    def left(self) -> None:
        """Note that the block has ended."""
        ...


class Observer(Protocol):
    """Follows everything that is done with a handle."""

    @property
    def trace(self) -> str | None:
        """The caller's W3C traceparent; None outside a trace."""
        ...

    def saving(self, thread: str, step: int) -> Observed:
        """Observe the commit of a checkpoint."""
        ...

    def loading(self, thread: str) -> Observed:
        """Observe the load of a state."""
        ...

    def running(self, thread: str, agent: str | None) -> RunObservation:
        """Observe the claim of a run."""
        ...


class Interceptor(Protocol):
    """Decides which functions the calls of runs invoke. `thread` is the number of a thread in the store."""

    def tool(self, tool: Tool, *, thread: int, step: int, key: str) -> Tool:
        """The tool to call instead. `key` is that of the call's journal entry."""
        ...

    def model(self, function: Callable[..., Any], *, thread: int, step: int) -> Callable[..., Any]:
        """The function to call instead, for a model call that is not a stream."""
        ...

    def stream(self, function: Callable[..., Any], digest: bytes, *, thread: int, step: int) -> Callable[[], None]:
        """Note that the function of a stream is called. Return a function to call at the end of the stream."""
        ...
