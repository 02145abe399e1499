"""All errors that Holdfast raises. `HoldfastError` is the base class of every one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.types import Checkpoint, EraseResult


class HoldfastError(Exception):
    """Base class of all errors of Holdfast."""


class InvalidArgument(HoldfastError, ValueError):
    """An argument is wrong, or the call is not possible here. The message says what is wrong, and what was not done."""


class Unsupported(InvalidArgument):
    """A value cannot be stored, because it would not be restored exactly.

    If a save raises it, nothing was stored. If a call raises it because of an argument, nothing was called. If a call
    raises it because of the result, the call was made, and its result is not recorded.
    `path` says where the value is (`$.messages[3].args.when`). `undeclared` is the name of its class if the value could
    be stored with a declared type.
    """

    def __init__(self, path: str, problem: str, undeclared: str | None = None) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem
        self.undeclared = undeclared

    def __reduce__(self) -> tuple[type[Unsupported], tuple[str, str, str | None]]:
        return type(self), (self.path, self.problem, self.undeclared)


class TooLarge(InvalidArgument):
    """A state exceeds the size limit of this handle; nothing was stored."""


class NotFound(HoldfastError, LookupError):
    """There is no such thread, checkpoint, run, call, tool, act or schedule; nothing was changed."""


class Ambiguous(NotFound):
    """A short id matches more than one checkpoint. Give more characters of it."""


class Conflict(HoldfastError):
    """The operation does not fit what is stored now, often because of another writer.

    The message says what was found, and what was changed if anything was. After a refused save, call `latest()` and
    decide whether to save again.
    """


class AlreadyExists(Conflict):
    """A thread or store with that name exists; nothing was changed."""


class Protected(Conflict):
    """The checkpoint is the head, or the thread's run resumes from it. It cannot be deleted; nothing was changed."""


class EffectsAhead(Conflict):
    """A rewind would pass an irreversible call, or the run would repeat one after the save; nothing was changed.

    Undo the call or resume the run, or pass `past_effects=True`.
    """


class JournalAhead(Conflict):
    """A commit from outside an unfinished run did not give the number of the newest journal entry; nothing was stored.

    Only stores raise it. `Thread.save` catches it, reads the journal, and saves again or raises `EffectsAhead`.
    """


class EffectMismatch(Conflict):
    """A call or question has the key of a recorded one, but other content; nothing was called or asked."""


class ActHeld(Conflict):
    """Another journal entry has claimed the act; nothing was stored. Only stores raise it.

    `thread` is the number of that entry's thread, and `number` that of the entry.
    """

    def __init__(self, message: str, thread: int, number: int) -> None:
        super().__init__(message)
        self.thread = thread
        self.number = number

    def __reduce__(self) -> tuple[type[ActHeld], tuple[str, int, int]]:
        return type(self), (str(self), self.thread, self.number)


class ActUnderWay(Conflict):
    """Another call does the same act at this moment and did not end in time; nothing was called. Try again later.

    `thread` is the thread of that call, and `number` its number in the journal.
    """

    def __init__(self, message: str, thread: str, number: int) -> None:
        super().__init__(message)
        self.thread = thread
        self.number = number

    def __reduce__(self) -> tuple[type[ActUnderWay], tuple[str, str, int]]:
        return type(self), (str(self), self.thread, self.number)


class NotRecorded(HoldfastError):
    """A run with `effects="recorded"` called an acting tool without a recorded result; the tool was not called."""


class Incompatible(HoldfastError):
    """The stored run or state has a version that this program cannot continue; nothing was changed."""


class LeaseHeld(HoldfastError):
    """Another process, or another block of this one, runs the thread; nothing was changed. Wait until that run ends."""


class LimitReached(LeaseHeld):
    """A handler's limit does not allow another run now; nothing was changed. Workers try again by themselves.

    `seconds` is the time until its rate allows the next run; None if its `concurrency` is reached.
    """

    def __init__(self, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds

    def __reduce__(self) -> tuple[type[LimitReached], tuple[str, float | None]]:
        return type(self), (str(self), self.seconds)


class LeaseLost(HoldfastError):
    """This process can no longer be sure that it holds the run, so it does nothing more with it.

    Another process may hold it now. The message says whether a call was made.
    """


class ToolNotDone(HoldfastError):
    """Raise it in a tool to report that nothing was done. The tool may then be called again."""


class CallFailed(HoldfastError):
    """A recorded failure of a call, raised again on replay. The function was not called again.

    The message has the class and the text of the original error. If the program has imported that class, and an error
    can be made from the text alone, the original error is raised instead.
    """


class CallTimedOut(HoldfastError):
    """A tool took longer than its `timeout`.

    An async function was cancelled. A sync function continues in its Python thread. Not a
    `TimeoutError`: a tool may raise that itself, and `not_done=` may then say that nothing happened.
    """


class Cancelled(HoldfastError):
    """The run was cancelled with `hf.cancel` and is halted. `hf.run` resumes it."""


class Halted(HoldfastError):
    """A guard halted the run before its next call. `hf.run` with other guards resumes it."""


class WaitTimedOut(HoldfastError, TimeoutError):
    """`run.wait` was not answered in time."""


class Unfinished(Conflict):
    """The run or the turn is not completed. The message says why, and what to do.

    `turn` is the id of the turn; None if it was started without one.
    """

    def __init__(self, message: str, turn: str | None) -> None:
        super().__init__(message)
        self.turn = turn

    def __reduce__(self) -> tuple[type[Unfinished], tuple[str, str | None]]:
        return type(self), (str(self), self.turn)


class AskedByChild(Conflict):
    """The question was asked by a child run; nothing was stored. Answer `thread` instead."""

    def __init__(self, message: str, thread: str) -> None:
        super().__init__(message)
        self.thread = thread

    def __reduce__(self) -> tuple[type[AskedByChild], tuple[str, str]]:
        return type(self), (str(self), self.thread)


class NotInstalled(HoldfastError, ImportError):
    """A package is not installed. The message names the extra of Holdfast that includes it."""


class Closed(HoldfastError):
    """The handle was closed; open the store again."""


class StoreError(HoldfastError):
    """The store failed. `__cause__` says why."""


class Busy(StoreError):
    """The store was locked by another process for too long; nothing was changed. Try again."""


class ErasePending(StoreError):
    """The threads are erased, but a reader keeps their data in the store's files. Call `hf.erase` again to finish.

    `erased` is the result so far.
    """

    erased: EraseResult | None = None


class StoreFull(StoreError):
    """The disk is full; nothing was changed. Free some space, then save again."""


class ReadOnly(StoreError):
    """This process may not write to the store; nothing was changed."""


class NotAStore(StoreError):
    """The file is not a Holdfast store; it was not changed."""


class NewerFormat(StoreError):
    """The store was written by a newer Holdfast; it was not changed. Upgrade Holdfast to open it."""


class WrongKey(StoreError):
    """The store is encrypted with another key; nothing was changed."""


class NotEncrypted(StoreError):
    """The store is not encrypted, and a cipher was given or is needed; it was not changed."""


class Replaced(StoreError):
    """The store's file was replaced while it was open; nothing was written. Open the store again."""


class Damaged(StoreError):
    """Stored data is damaged: it is not what was written.

    The message names what is affected; other checkpoints stay readable. `latest(fallback=True)` loads the newest
    undamaged ancestor. `hf.verify()` reports all damage, and `hf.repair()` copies what can be read. If the store cannot
    be opened, the command `holdfast repair` copies it.
    """

    known: Any = None
    """For a thread whose newest record is unreadable: the last record that is readable."""


class OutcomeUnknown(StoreError):
    """The store failed during a commit. It is not known whether the write was made.

    With a cipher, it is also not known whether the key of a new thread was stored.

    After a save, open the store again and call `load(error.checkpoint.id)`: it returns the whole checkpoint, or raises
    `NotFound`. After other writes, `checkpoint` is None.

    A handle of a SQLite or directory store accepts no further calls.
    """

    checkpoint: Checkpoint | None = None
