"""Observer: the protocol by which tracing follows what a handle does.

A handle has no observer by default. An observer gets names, numbers and classes of errors. It never gets a state,
arguments, a result or a message.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal, Protocol, TypeAlias

CallKind = Literal["model", "tool"]


class Observation(Protocol):
    """One operation in progress."""

    def tell(self, *, step: int | None = None, replayed: bool | None = None) -> None:
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
        """Observe a call in the block. `name` is the tool's name. A stream exits and enters again between chunks."""
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
