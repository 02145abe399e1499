"""Calls inside a step: model calls and tools, answered from the journal where it has the answer."""

from __future__ import annotations

import hashlib
import inspect
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from holdfast.codec import packed
from holdfast.codec.typed import StateType
from holdfast.errors import Conflict, HoldfastError, InvalidArgument, LeaseLost, Unsupported
from holdfast.runs.journal import Journal, now
from holdfast.runs.lease import Lease, local_seconds
from holdfast.runs.outcome import GiveUp, Happened, NotDone, unknown_outcome
from holdfast.runs.tools import Tool, Tools, checked_arguments
from holdfast.stores.running import EffectRow

OnChange = Literal["recorded", "rerun"]


class Parked(BaseException):
    """Ends a run's block without ending the run: somebody has to answer first. Not an error, so nobody catches it."""


class Asked(msgspec.Struct, frozen=True):
    """The call that a run waits to hear about."""

    row: EffectRow


class Calls:
    """Makes the calls of one run and keeps the journal of them."""

    def __init__(self, journal: Journal, lease: Lease, tools: Tools, identity: bytes) -> None:
        """`identity` tells this run from every other, for idempotency keys."""
        self._journal = journal
        self._lease = lease
        self._tools = tools
        self._identity = identity
        self._lock = threading.Lock()
        self._ordinals: dict[str, int] = {}
        self._unkeyed: int | None = None
        self._under_way: set[str] = set()
        self.step = 0
        self.events: set[Literal["model", "tool"]] = set()
        self.asked: Asked | None = None
        self.changed: list[EffectRow] = []

    def require_ended(self) -> None:
        """InvalidArgument if calls are under way: a checkpoint would hold them without their results."""
        with self._lock:
            if self._under_way:
                raise InvalidArgument("a step cannot be closed while calls are under way in it; wait for their results")

    def open_step(self, step: int) -> None:
        self.step = step
        self._ordinals.clear()
        self._unkeyed = None
        self.events.clear()

    # -- model calls ------------------------------------------------------------------------------------------------

    def model(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        key: str | None,
        type: Any,
        on_change: OnChange,
    ) -> Any:
        """The recorded reply, or a new one, recorded before anybody sees it."""
        if not callable(function):
            raise InvalidArgument("run.model takes a function and its arguments")
        if on_change not in ("recorded", "rerun"):
            raise InvalidArgument('on_change must be "recorded" or "rerun"')
        if inspect.iscoroutinefunction(function):
            raise InvalidArgument("a sync run cannot await a model call; give it a function that is not async")
        conversion = None if type is None else StateType(type)
        self.events.add("model")
        with self._making("model", key) as full_key:
            arguments = _digest((list(args), kwargs))
            known = self._journal.find(self.step, full_key)
            if known is not None and known.status == "not_done":
                known = None
            if known is not None and known.arguments != arguments:
                self.changed.append(known)
                if on_change == "rerun":
                    if self._journal.has_begun(self.step):
                        raise Conflict(
                            "the arguments of a model call changed after its step had begun to act on the first reply; "
                            'take the recorded reply (on_change="recorded")'
                        )
                    known = None
            if known is not None:
                return self._recorded(known, conversion)
            self._lease.check()
            row = self._journal.new(self.step, full_key, _name(function), "model", "done", arguments)
            return self._record(row, function(*args, **kwargs), conversion)

    # -- tools ------------------------------------------------------------------------------------------------------

    def tool(self, named: str | Callable[..., Any], args: object, key: str | None) -> Any:
        """The recorded result, or that of a call made now: intent before, result after."""
        tool = self._tools.find(named)
        given = checked_arguments(args)
        call = packed.encode(given)
        packed.check(given)
        self.events.add("tool")
        with self._making(tool.name, key) as full_key:
            arguments = hashlib.sha256(call).digest()
            known = self._journal.find(self.step, full_key)
            if known is not None and known.arguments != arguments:
                if known.fence == self._lease.fence and known.status == "done":
                    raise InvalidArgument(
                        f"{tool.name!r} was called with this key and other arguments in this step already; "
                        "give each call a key of its own"
                    )
                self.changed.append(known)
            if known is not None and known.status == "not_done" and self._was_seen(known):
                raise NotDone(known.error)
            if known is None or known.status in ("not_done", "failed"):
                tool.check(given)
                row = self._journal.new(self.step, full_key, tool.name, tool.effect, "begun", arguments)
                return self._attempt(tool, given, row if tool.effect == "read" else replace(row, call=call))
            if known.status in ("begun", "in_doubt"):
                return self._in_doubt(tool, given, known)
            return self._recorded(known)

    def _was_seen(self, row: EffectRow) -> bool:
        """Whether a process that is gone was told that a call was not done, and went on from there.

        What it did then may stand in for the call: making the call now would be one too many.
        """
        return row.error is not None and row.fence != self._lease.fence and self._journal.has_after(row.number)

    def _attempt(self, tool: Tool, given: dict[str, Any], row: EffectRow) -> Any:
        """Call a tool, as often as it may be retried."""
        left = tool.retry
        while True:
            try:
                return self._call(tool, given, row)
            except _Doubt as doubt:
                row = doubt.row
                if not left or tool.in_doubt not in ("rerun", "give_up"):
                    decided = self._decide(tool, given, row)
                    if isinstance(decided, _Answer):
                        return decided.result
                    if not left:
                        raise doubt.cause from None
                    row = decided
            except (LeaseLost, Unsupported):
                raise
            except Exception:  # whatever a tool raises: tried again while it may be, then the caller's
                if not left or (tool.effect == "irreversible" and not self._is_not_done(row)):
                    raise
            left -= 1

    def _is_not_done(self, row: EffectRow) -> bool:
        known = self._journal.find(row.step, row.key)
        return known is not None and known.status == "not_done"

    def _call(self, tool: Tool, given: dict[str, Any], row: EffectRow) -> Any:
        if tool.effect == "read":
            self._lease.check()
            result = self._run(tool, given, row)
            return self._record(replace(row, status="done"), result, with_next=True)
        # The intent is the fence check: a worker that lost its lease is refused before it acts.
        row = self._journal.write(
            replace(row, status="begun", fence=self._lease.fence, begun_at=now(), ended_at=None, error=None)
        )
        try:
            self._lease.check()
        except LeaseLost as error:
            self._end(replace(row, status="not_done", error=_text(error)))
            raise
        nothing_happened: tuple[type[BaseException], ...] = (NotDone, *tool.not_done)
        try:
            result = self._run(tool, given, row)
        except nothing_happened as error:
            self._end(replace(row, status="not_done", error=_text(error)))
            raise
        except Exception as error:
            if tool.effect == "irreversible" or isinstance(error, _TimedOut):
                row = self._end(replace(row, status="in_doubt", error=_text(error)))
                raise _Doubt(row, error) from error
            self._end(replace(row, status="failed", error=_text(error)))
            raise
        return self._record(replace(row, status="done"), result)

    def _run(self, tool: Tool, given: dict[str, Any], row: EffectRow) -> Any:
        if tool.takes_key:
            given = {**given, "idempotency_key": self._idempotency_key(row)}
        if tool.timeout is None:
            return tool.function(**given)
        return _within(tool.timeout, tool.function, given)

    def _in_doubt(self, tool: Tool, given: dict[str, Any], row: EffectRow) -> Any:
        """The result of a call that another process began, and whose end nobody recorded."""
        if row.call is not None:
            # In doubt is the call that was made, whatever words the model has for it now.
            given = packed.decode(row.call)
        decided = self._decide(tool, given, row)
        return decided.result if isinstance(decided, _Answer) else self._attempt(tool, given, decided)

    def _decide(self, tool: Tool, given: dict[str, Any], row: EffectRow) -> _Answer | EffectRow:
        """The answer to a call in doubt, or the entry under which to make it again. Parks the run if nobody knows."""
        if tool.in_doubt == "rerun":
            return row
        if tool.in_doubt == "give_up":
            return self._give_up(tool, row)
        answer = self._probed(tool, given, row)
        if isinstance(answer, Happened):
            return _Answer(self._record(replace(row, status="done"), answer.result))
        if isinstance(answer, NotDone) or answer is NotDone:
            self._end(replace(row, status="not_done"))
            return replace(row, number=0, ended_at=None)
        if isinstance(answer, GiveUp) or answer is GiveUp:
            return self._give_up(tool, row)
        if row.status != "in_doubt":
            row = self._end(replace(row, status="in_doubt"))
        self.asked = Asked(row)
        raise Parked

    def _probed(self, tool: Tool, given: dict[str, Any], row: EffectRow) -> object:
        """What the tool's probe says of a call; None if there is none, or it does not know."""
        if tool.probe is None:
            return None
        if _takes_key(tool.probe):
            given = {**given, "idempotency_key": self._idempotency_key(row)}
        return tool.probe(**given)

    def _give_up(self, tool: Tool, row: EffectRow) -> _Answer:
        return _Answer(self._record(replace(row, status="given_up"), unknown_outcome(tool.name)))

    # -- records ----------------------------------------------------------------------------------------------------

    def _record(
        self, row: EffectRow, result: Any, conversion: StateType | None = None, *, with_next: bool = False
    ) -> Any:
        """Record a result and give back what was recorded: the first call returns what its replay will."""
        try:
            plain = result if conversion is None else conversion.to_plain(result)
            packed.check(plain)
            encoded = packed.encode(plain)
        except Unsupported as refused:
            self._end(replace(row, status="unstored", error=str(refused), ended_at=now()))
            raise Unsupported(
                refused.path, f"what {row.name} returned cannot be recorded: {refused.problem}"
            ) from refused
        row = replace(row, result=encoded, error=None, ended_at=now())
        if with_next:
            self._journal.write_with_next(row)
        else:
            self._end(row)
        return _decoded(encoded, conversion)

    def _end(self, row: EffectRow) -> EffectRow:
        row = row if row.ended_at is not None else replace(row, ended_at=now())
        try:
            return self._journal.write(row)
        except LeaseLost:
            self._journal.write_late(row)
            raise

    def _recorded(self, row: EffectRow, conversion: StateType | None = None) -> Any:
        if row.status == "unstored" or row.result is None:
            raise HoldfastError(
                f"{row.name} ran, but what it returned could not be recorded ({row.error}); settle it with hf.settle "
                "before the run goes on"
            )
        return _decoded(row.result, conversion)

    # -- keys -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _making(self, name: str, key: str | None) -> Generator[str]:
        """A call's key, with its name in it. Refuses calls beside each other that a replay could not tell apart."""
        if key is not None and (type(key) is not str or not key):
            raise InvalidArgument("a call's key is a text that is not empty")
        with self._lock:
            if key is None:
                if self._unkeyed not in (None, threading.get_ident()):
                    raise InvalidArgument(
                        "calls that several threads make in one step need keys: after a crash nobody could tell which "
                        "was which; pass key="
                    )
                self._unkeyed = threading.get_ident()
                ordinal = self._ordinals[name] = self._ordinals.get(name, 0) + 1
                full = f"{name}#{ordinal}"
            else:
                full = f"{name}/{key}"
                if full in self._under_way:
                    raise InvalidArgument(f"two calls of {name!r} are under way with the same key; give each its own")
            self._under_way.add(full)
        try:
            yield full
        except BaseException:
            if key is None:
                # A call that failed and is made again is the same call, or a replay would count them otherwise.
                with self._lock:
                    self._ordinals[name] -= 1
            raise
        finally:
            with self._lock:
                self._under_way.discard(full)

    def _idempotency_key(self, row: EffectRow) -> str:
        parts = (self._identity, row.branch, row.step, row.key)
        return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()


class _Answer(msgspec.Struct, frozen=True):
    """How a call in doubt was decided."""

    result: Any


class _Doubt(Exception):
    """A call ended in a way that leaves open whether it happened."""

    def __init__(self, row: EffectRow, cause: Exception) -> None:
        super().__init__()
        self.row = row
        self.cause = cause


class _TimedOut(HoldfastError):
    """A tool took longer than it may."""


def _within(seconds: float, function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Call a function in a thread of its own and wait so long. It cannot be stopped: it may still happen."""
    outcome: list[tuple[Any, BaseException | None]] = []

    def call() -> None:
        try:
            outcome.append((function(**given), None))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            outcome.append((None, error))

    thread = threading.Thread(target=call, name="holdfast-tool", daemon=True)
    started = local_seconds()
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise _TimedOut(f"no answer after {local_seconds() - started:.1f} seconds")
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def _decoded(encoded: bytes, conversion: StateType | None) -> Any:
    plain = packed.decode(encoded)
    return plain if conversion is None else conversion.from_plain(plain)


def _digest(arguments: Any) -> bytes:
    """A digest of arguments; of none if they hold something that has no bytes, such as a client."""
    try:
        return hashlib.sha256(packed.encode(arguments)).digest()
    except Unsupported:
        return b""


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _takes_key(function: Callable[..., Any]) -> bool:
    try:
        return "idempotency_key" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]
