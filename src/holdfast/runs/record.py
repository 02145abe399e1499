"""The record of a run: the changes it goes through, and how errors are kept in it."""

from __future__ import annotations

import builtins
import hashlib
import math
import sys
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import CallFailed, InvalidArgument
from holdfast.redaction import AS_IS, Redaction
from holdfast.runs.lease import now
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import Clock, Entry, Progress, RunRow
from holdfast.threads.ancestry import boundary_of
from holdfast.threads.metadata import moment
from holdfast.threads.process import is_dead
from holdfast.types import Effect, Status

MAX_RACES: Final = 1000  # after so many lost races, the records are assumed to contradict each other
ENDED: Final = ("completed", "halted", "dead")
RELEASED: Final = ("queued", "idle", "released", "failed", "halted", "dead")  # held by no process, and not completed
UNFINISHED: Final = ("running", "released", "failed")  # interrupted, if no process holds it
ACTING: Final = ("idempotent", "irreversible")  # the kinds of calls that act
CALLS: Final = ("model", "read", *ACTING)
DOUBTFUL: Final = ("started", "in_doubt", "unstored")  # entries of calls without a recorded result
_PAGE: Final = 200
_POLL_SECONDS: Final = 0.05
_TEXT_CHARACTERS: Final = 500


# -- who holds a run ----------------------------------------------------------------------------------------------


def is_lease_expired(row: RunRow, clock: Clock) -> bool:
    """Whether the lease of a run has expired. A lease on another clock has: its machine was restarted."""
    return row.clock != clock.id or clock.has_reached(row.lease_until)


def is_free(store: Store, row: RunRow, clock: Clock | None = None) -> bool:
    """Whether no process holds a run: it is not running, its lease has expired, or its owner is proven dead.

    Pass `clock` when many runs are checked: reading it may be a round trip.
    """
    if row.status != "running" or row.owner is None:
        return True
    return is_dead(row.owner) or is_lease_expired(row, clock or store.clock())


def handler_of(row: RunRow) -> str | None:
    """The name of the handler that resumes a run. For a run that was not submitted, it is that of its agent."""
    return row.handler or row.agent


def pauses(seconds: float) -> Iterator[float]:
    """The seconds to sleep after each attempt that has to be repeated. After them, one last attempt is due."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        yield min(_POLL_SECONDS, left)


# -- changes ------------------------------------------------------------------------------------------------------


def released_row(row: RunRow, status: Status, reason: str | None = None) -> RunRow:
    """The record of a run that its worker releases."""
    return replace(row, status=status, owner=None, lease_until=0, updated_at=now(), reason=reason)


def released_unfinished(row: RunRow, status: Status) -> RunRow:
    """The record of a run that is released without an end and without a failure."""
    # The attempt does not count: a long run must survive any number of deployments.
    return replace(released_row(row, status), attempt=max(row.attempt - 1, 0))


def queued(row: RunRow) -> RunRow:
    """The record of a run that is queued, also of a run that waited."""
    # Waiting is not a failure. The next claim counts this attempt again.
    return replace(
        row,
        status="queued",
        attempt=max(row.attempt - 1, 0),
        fence=row.fence + 1,
        reason=None,
        question=0,
        also=(),
        wake_at=0,
        wake_wall=0,
        updated_at=now(),
    )


def awaited_entries(row: RunRow) -> tuple[int, ...]:
    """The numbers of the entries that a waiting run waits for."""
    return (row.question, *row.also) if row.status == "waiting" and row.question else ()


def ended_from_outside(row: RunRow, status: Status, reason: str | None) -> RunRow:
    """The record of a run that no process holds and that another process ends."""
    return replace(
        row,
        status=status,
        owner=None,
        lease_until=0,
        reason=reason,
        fence=row.fence + 1,
        updated_at=now(),
    )


def progress_of(done: object, total: object, note: object) -> Progress:
    """The progress that a run reports, checked."""
    if note is not None and type(note) is not str:
        raise InvalidArgument("progress: note must be a string")
    return Progress(_amount("done", done), None if total is None else _amount("total", total), note, now())


def _amount(name: str, number: object) -> float:
    if not isinstance(number, int | float) or isinstance(number, bool) or not 0 <= number < math.inf:
        raise InvalidArgument(f"progress: {name} must be a number, 0 or more")
    return float(number)


def start_digest(plain: Any) -> bytes:
    """The digest of the state that a run starts with. It identifies repeated submissions."""
    return hashlib.sha256(msgpack.encode(plain)).digest()


def resume_step(run: RunRow, thread: ThreadRow) -> int:
    """The step after which a run resumes."""
    boundary = boundary_of(run, thread.position)
    return thread.summary.step if boundary is None else boundary.step


# -- errors as text -----------------------------------------------------------------------------------------------


def text_of(error: BaseException, redaction: Redaction = AS_IS) -> str:
    """An error as records keep it: its class and its message. The message is redacted before it is cut."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}: {redaction.message(str(error))}"[:_TEXT_CHARACTERS]


def error_of(text: str) -> Exception:
    """The error of a text: of its own class if the program has loaded that, else CallFailed.

    Nothing is imported for a stored name. The class is created without its constructor, so it has no attributes.
    """
    name, _, message = text.partition(": ")
    kind = _loaded(name)
    if kind is None:
        return CallFailed(text)
    native: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    try:
        error: Exception = native.__new__(kind)
        error.args = (message,)
        str(error)
    except Exception:  # noqa: BLE001 - its `__new__` or `__str__` needs more than a message
        return CallFailed(text)
    return error


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and every error that led to it, also inside groups."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        found = todo.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            yield found
            todo += [found.__cause__, found.__context__]
            if isinstance(found, BaseExceptionGroup):
                todo += found.exceptions


def _loaded(name: str) -> type[Exception] | None:
    """The exception class of a name, if its module is loaded.

    Read from `vars`: `getattr` of a module may import what a stored name asks for.
    """
    if len(name) > _TEXT_CHARACTERS:
        return None
    module, _, rest = name.rpartition(".")
    found: object = vars(builtins).get(rest) if not module else None
    while module and found is None:
        if module in sys.modules:
            found = sys.modules[module]
            for part in rest.split("."):
                found = vars(found).get(part) if isinstance(found, ModuleType | type) else None
            break
        module, _, outer = module.rpartition(".")
        rest = f"{outer}.{rest}"
    return found if isinstance(found, type) and issubclass(found, Exception) else None


# -- names in the journal -----------------------------------------------------------------------------------------

CANCEL: Final = "cancel"  # the topic of cancellations
CHILD: Final = "child"  # the topic of child runs


def turn_topic(turn: str) -> str:
    """The topic of the result of a turn."""
    return f"turn/{turn}"


def question_topic(name: str) -> str:
    """The topic of the questions of a name and their answers."""
    return f"wait/{name}"


def child_thread(parent: str, name: str, branch: int) -> str:
    """The thread of a child. After a rewind of its parent, a child of the same name has another thread."""
    return f"{parent}/{name}" if not branch else f"{parent}/{name}~{branch}"


def child_name(thread: str) -> str:
    """The name of the child that runs on a thread."""
    return thread.rpartition("/")[2].partition("~")[0]


# -- reading ------------------------------------------------------------------------------------------------------


def each_run(store: Store, statuses: tuple[str, ...]) -> Iterator[tuple[str, RunRow]]:
    """The runs in these statuses with the names of their threads, oldest first."""
    after = (0, 0)
    while page := store.runs(statuses=statuses, after=after, limit=_PAGE):
        yield from page
        last = page[-1][1]
        after = (last.updated_at, last.thread)
    store.runs(statuses=(), after=(0, 0), limit=1)  # raises if the status of some run cannot be read


def effect_of(row: Entry) -> Effect:
    """A journal entry as users see it."""
    return Effect(
        number=row.number,
        branch=row.branch,
        step=row.step,
        key=row.key,
        name=row.name,
        effect=row.kind,
        status=row.status,
        started_at=moment(row.started_at),
        ended_at=None if row.ended_at is None else moment(row.ended_at),
        arguments=None if row.call is None else msgpack.decode(row.call),
        result=None if row.result is None else msgpack.decode(row.result),
        error=row.error,
        by=row.by,
        again_at=None if row.again is None else moment(row.again.wall),
    )
