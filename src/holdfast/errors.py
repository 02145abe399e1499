"""Every error Holdfast raises: one tree, so `except HoldfastError` catches all of it and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.types import Checkpoint, Erased


class HoldfastError(Exception):
    """Something Holdfast was asked to do could not be done."""


class InvalidArgument(HoldfastError, ValueError):
    """An argument is of the wrong kind or out of range; nothing was read or written."""


class Unsupported(InvalidArgument):
    """A state holds a value that would not come back equal; nothing was stored.

    `path` says where (`$.messages[3].args.when`).
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[type[Unsupported], tuple[str, str]]:
        return type(self), (self.path, self.problem)


class TooLarge(InvalidArgument):
    """A state is over the size limit of this handle; nothing was stored."""


class NotFound(HoldfastError, LookupError):
    """No thread or checkpoint of that name; nothing was changed."""


class Ambiguous(NotFound):
    """A short id matches more than one checkpoint; give more of it."""


class Conflict(HoldfastError):
    """The thread is not where the caller expected it to be; nothing was stored.

    Somebody else saved or rewound it. Call `latest()` to see where it is now, then decide.
    """


class AlreadyExists(Conflict):
    """A thread of that name exists; nothing was changed."""


class Protected(Conflict):
    """The checkpoint must stay: it is the head of its thread."""


class EffectsAhead(Conflict):
    """A rewind would go back past something that cannot be undone; nothing was changed."""


class NotRecorded(HoldfastError):
    """A run with `effects="recorded"` called a tool that acts, and there is no recorded result; nothing was done."""


class Incompatible(HoldfastError):
    """What is stored is of a version that this program cannot go on with; nothing was changed."""


class LeaseHeld(HoldfastError):
    """Another worker holds the thread; nothing was changed. It is free when that run ends, or its lease does."""


class LeaseLost(HoldfastError):
    """This worker no longer holds the thread: its lease ended and another worker has it. Nothing was changed."""


class ToolNotDone(HoldfastError):
    """Raise it in a tool to report that nothing was done. The tool may then be called again."""


class CallFailed(HoldfastError):
    """A call failed before the process died, and the run went on from there. The class of its error is not loaded."""


class CallTimedOut(HoldfastError):
    """A tool took longer than its `timeout`. It cannot be stopped: it may still happen while `is_running` says so.

    Not a TimeoutError: if a tool raises one of its own, `not_done=` may say that nothing happened. Of this nobody can.
    """

    def __init__(self, message: str, is_running: Callable[[], bool] | None = None) -> None:
        super().__init__(message)
        self.is_running = is_running

    def __reduce__(self) -> tuple[type[CallTimedOut], tuple[str]]:
        return type(self), (str(self),)


class Cancelled(HoldfastError):
    """Somebody cancelled the run with `hf.cancel`; it is halted. `hf.run` goes on with it where it stopped."""


class Halted(HoldfastError):
    """A guard stopped the run before its next call; it is halted. `hf.run` with other guards goes on with it."""


class WaitTimedOut(HoldfastError, TimeoutError):
    """Nobody answered `run.wait` in time."""


class Unfinished(Conflict):
    """The thread is busy with another turn, which has to be finished first: run it again with its own `turn=`.

    `turn` is its id, None if it was begun without.
    """

    def __init__(self, message: str, turn: str | None) -> None:
        super().__init__(message)
        self.turn = turn

    def __reduce__(self) -> tuple[type[Unfinished], tuple[str, str | None]]:
        return type(self), (str(self), self.turn)


class AskedByChild(Conflict):
    """The question is a child's: answer `thread`, which asks it. Nothing was stored."""

    def __init__(self, message: str, thread: str) -> None:
        super().__init__(message)
        self.thread = thread

    def __reduce__(self) -> tuple[type[AskedByChild], tuple[str, str]]:
        return type(self), (str(self), self.thread)


class NotInstalled(HoldfastError, ImportError):
    """Something needs a package that is not installed. The message says which extra of Holdfast brings it."""


class Closed(HoldfastError):
    """The handle was closed; open the store again."""


class StoreError(HoldfastError):
    """The store could not do its work. The cause says why."""


class Busy(StoreError):
    """Another process held the store for too long; nothing was changed. Try again."""


class ErasePending(StoreError):
    """What was erased is gone for every reader, and still in the store's files: a read under way keeps it there.

    Nothing else is lost. Call `hf.erase` again, when whoever reads has ended that. `erased` says what was removed.
    """

    erased: Erased | None = None


class StoreFull(StoreError):
    """No room for the write; nothing was changed. Free space, then save again."""


class ReadOnly(StoreError):
    """The store cannot be written by this process; nothing was changed."""


class NotAStore(StoreError):
    """The file is something other than a Holdfast store; it was left as it was."""


class NewerFormat(StoreError):
    """The store was written by a newer Holdfast; it was left as it was. Upgrade to read it."""


class WrongKey(StoreError):
    """The store is encrypted, and the keys that were given do not open it; nothing was changed."""


class NotEncrypted(StoreError):
    """A cipher was given, and the store holds what is not encrypted; it was left as it was."""


class Replaced(StoreError):
    """The store's file was replaced by another while it was open; nothing was written. Open the store again."""


class Damaged(StoreError):
    """Stored bytes are not what was written.

    The message names what is hurt; other checkpoints stay readable. `latest(fallback=True)` finds the newest
    undamaged ancestor.
    """

    known: Any = None
    """What a store still knows of a thread whose newest record is lost, for the layers above it."""


class OutcomeUnknown(StoreError):
    """The store failed while committing: the write may or may not have happened.

    This handle takes no further calls. Open the store again and `load(error.checkpoint.id)`: it is there, whole,
    or raises `NotFound`.
    """

    checkpoint: Checkpoint | None = None
