"""What may watch a handle at work: a small protocol, so that the layers know nothing of who watches.

A session has no observer unless somebody puts one in, and then nothing here costs more than finding that out. An
observer hears names, numbers and classes of errors. It is never given a state, arguments, a result or a message.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal, Protocol, TypeAlias

CallKind = Literal["model", "tool"]


class Observation(Protocol):
    """One thing being done, from where its block begins to where it ends, or raises."""

    def tell(self, *, step: int | None = None, replayed: bool | None = None) -> None:
        """What became known meanwhile: of which step it is, whether a call was answered from the journal."""
        ...


Observed: TypeAlias = AbstractContextManager[Observation]


class RunObservation(Protocol):
    """One claim of a run and what is done in its block. Made where the block is entered, in the caller's context."""

    @property
    def trace(self) -> str | None:
        """What to keep with the run, so that its next claim can refer to this one: a W3C traceparent."""
        ...

    def claimed(self, *, before: str | None, resumed: bool, step: int, attempt: int) -> None:
        """The run is claimed. `before` is the trace that its last claim left."""
        ...

    def refused(self, error: BaseException) -> None:
        """The run could not be claimed; nothing more is heard of this."""
        ...

    def calling(self, kind: CallKind, name: str | None, *, step: int, is_stream: bool) -> Observed:
        """A call inside the block. `name` is the tool's. A stream is left and entered again between its chunks."""
        ...

    def left(self) -> None:
        """The block has ended, where it was entered."""
        ...


class Observer(Protocol):
    """Somebody who watches all that is done with a handle."""

    @property
    def trace(self) -> str | None:
        """Where the caller is: a W3C traceparent, None if it is in no trace."""
        ...

    def saving(self, thread: str, step: int) -> Observed:
        """A checkpoint is being committed."""
        ...

    def loading(self, thread: str) -> Observed:
        """A state is being read."""
        ...

    def running(self, thread: str, agent: str | None) -> RunObservation:
        """A run is about to be claimed."""
        ...
