"""Acts: which calls of a tool are the same act, which call has claimed an act, and releases of acts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.codec import jsontext, msgpack
from holdfast.errors import ActUnderWay, Conflict, Damaged, HoldfastError, InvalidArgument, NotFound, Unsupported
from holdfast.runs.arguments import checked_text
from holdfast.runs.drivers import is_async
from holdfast.runs.lease import may_act, now, require_cannot_act
from holdfast.runs.record import DOUBTFUL, is_free
from holdfast.runs.results import declared_result
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import ActRow, Entry, Release, RunRow
from holdfast.text import quoted
from holdfast.threads.audit import record_action
from holdfast.threads.context import Context
from holdfast.threads.effects import is_undone, tool_key
from holdfast.threads.metadata import moment
from holdfast.types import Act, ActStatus

WAIT_SECONDS = 10.0  # how long a call waits while another call does the same act, if its tool has no timeout
POLL_SECONDS: Final = 0.02
FREE: Final = ("not_done", "given_up", "released", "undone")

_PAGE: Final = 200
_KEY_DIGITS: Final = 64

Identity = tuple[str, ...] | Callable[..., Any]


# -- declaring ----------------------------------------------------------------------------------------------------


class ActIdentity(msgspec.Struct, frozen=True):
    """The declared rule by which two calls of a tool are the same act."""

    declared: Identity
    defaults: dict[str, Any]  # of the tool's parameters
    takes: tuple[str, ...] | None = None  # which arguments a declared function takes; None: all

    @classmethod
    def of(cls, identity: object, function: Callable[..., Any]) -> ActIdentity:
        """A declared identity, checked. InvalidArgument if the function does not have such parameters."""
        takes: tuple[str, ...] | None = None
        if callable(identity):
            takes = _taken_by(identity)
        elif not isinstance(identity, tuple) or not identity or not all(type(name) is str for name in identity):
            raise InvalidArgument("identity= must be a tuple of parameter names, or a function of the arguments")
        elif len(set(identity)) < len(identity):
            raise InvalidArgument("identity= names a parameter twice")
        declared = _parameters(function)
        parameters = [p for p in declared or () if p.name != "idempotency_key"]
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        checked = cls(identity, defaults, takes)
        if declared is not None and all(p.kind != p.VAR_KEYWORD for p in parameters):
            checked.require({p.name for p in parameters})
        return checked

    def require(self, parameters: Collection[str]) -> None:
        """InvalidArgument if the identity needs a parameter that is not one of the tool's `parameters`."""
        unknown = set(_needed_by(self.declared)).difference(parameters)
        if unknown:
            raise InvalidArgument(f"identity= names {', '.join(sorted(unknown))}, which the tool does not take")

    def text(self, given: dict[str, Any], tool: str) -> str:
        """The identity of a call as text, equal for equal values.

        InvalidArgument if the declared function raises, or if the identity, or a named parameter, is None, or if it
        cannot be stored.
        """
        given = {**self.defaults, **given}
        if isinstance(self.declared, tuple):
            missing = [name for name in self.declared if name not in given]
            if missing:
                raise InvalidArgument(
                    f"{tool}: its identity needs {', '.join(missing)}; it was not called. Pass that argument."
                )
            value: Any = {name: given[name] for name in self.declared}
            unknown = [name for name in self.declared if value[name] is None]
            if unknown:
                raise InvalidArgument(
                    f"{tool}: its identity needs {', '.join(unknown)}, and {unknown[0]} is None; it was not called. "
                    "Pass a value. If None is a valid value, declare identity= as a function of the arguments."
                )
        else:
            try:
                value = self.declared(**{n: v for n, v in given.items() if self.takes is None or n in self.takes})
            except Exception as error:
                kind = type(error).__name__  # the message of the error may contain an argument
                raise InvalidArgument(
                    f"{tool}: its identity function raised {kind}; it was not called. Correct that function."
                ) from error
        if value is None:
            raise InvalidArgument(f"{tool}: its identity is None; it was not called. Return what makes the act unique.")
        try:
            return jsontext.to_text(msgpack.encode(_canonical(value))).decode()
        except (Unsupported, RecursionError) as error:
            raise InvalidArgument(
                f"{tool}: its identity cannot be stored, {error}; it was not called. Return plain data."
            ) from error


def _taken_by(identity: Callable[..., Any]) -> tuple[str, ...] | None:
    """The names of the arguments that an identity function takes; None if it takes all."""
    parameters = _parameters(identity)
    if is_async(identity) or any(p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL) for p in parameters or ()):
        raise InvalidArgument("identity= must be a function that is not async and takes the tool's arguments by name")
    try:
        is_plain = declared_result(identity, "identity=").type is None
    except InvalidArgument:
        is_plain = False
    if not is_plain or getattr(identity, "__annotations__", {}).get("return", "") in (None, "None"):
        raise InvalidArgument("identity= must be a function that returns plain data, such as a string or a dict")
    if parameters is None or any(p.kind == p.VAR_KEYWORD for p in parameters):
        return None
    return tuple(p.name for p in parameters)


def _needed_by(identity: Identity) -> Collection[str]:
    if isinstance(identity, tuple):
        return identity
    return [p.name for p in _parameters(identity) or () if p.kind != p.VAR_KEYWORD and p.default is p.empty]


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None  # a builtin without a signature


def _canonical(value: Any) -> Any:
    """Dicts in the order of their keys, and 1 for 1.0: a model does not always write them alike."""
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is dict:
        return {key: _canonical(value[key]) for key in sorted(value, key=repr)}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return value


# -- claims -------------------------------------------------------------------------------------------------------


class ClaimedAct(NamedTuple):
    """A claim, and the status of its act. `entry` is None if the thread was deleted."""

    row: ActRow
    status: ActStatus
    entry: Entry | None = None
    run: RunRow | None = None  # of the thread of the entry


def claim_of(store: Store, key: bytes) -> ClaimedAct | None:
    """The claim of an act; None if the act is not claimed."""
    for row in store.acts(key=key, limit=1):
        return _claimed(store, row)
    return None


def _claimed(store: Store, row: ActRow) -> ClaimedAct:
    run = store.run(row.thread)
    entries = [] if run is None else store.entries(row.thread, after=row.number - 1, limit=1)
    if run is None or not entries:
        return ClaimedAct(row, "deleted")
    entry = entries[0]
    # An entry that has ended without its act: the tool reported an error as its result, and nothing was done. An entry
    # in doubt without its act was written by a repair, in the place of a lost entry.
    is_not_done = entry.act != row.key and entry.status not in DOUBTFUL
    return ClaimedAct(row, "not_done" if is_not_done else _status(store, run, entry), entry, run)


def _status(store: Store, run: RunRow, entry: Entry) -> ActStatus:
    if entry.released is not None:
        return "released"
    match entry.status:
        case "done" | "late" | "unstored":
            return "undone" if is_undone(store, run.thread, entry) else "done"
        case "not_done" | "failed":
            return "not_done"
        case "given_up":
            return "under_way" if may_act(entry, store.clock()) else "given_up"
        case "started" if run.status == "running" and run.fence == entry.fence and not is_free(store, run):
            return "under_way"
        case _:
            return "in_doubt"


def decision_for(
    status: ActStatus | None, *, is_own: bool, was_started: bool
) -> Literal["result", "wait", "doubt", "free", "ask", "claim_in_doubt"]:
    """The decision about a call with an act, by the status of the act (None: not claimed). A table to read downwards.

    `is_own`: the claim is of this call. `was_started`: this call was started and has no outcome.
    """
    match (status, is_own, was_started):
        # Another call has done the act since, or does it now: that decides, also if this call was started.
        case ("done", False, _):
            return "result"
        case ("under_way", False, _):
            return "wait"
        case (_, _, True):
            return "doubt"
        case (None | "not_done" | "given_up" | "released" | "undone", _, _):
            return "free"
        case ("done", _, _):
            return "result"
        case ("under_way", _, _):
            return "wait"
        case ("deleted", _, _):
            return "ask"
        case ("in_doubt", _, _):
            return "claim_in_doubt"


def was_started(entry: Entry, *, is_own: bool) -> bool:
    """Whether a call with an act was itself started and has no outcome. `is_own`: whether it holds the claim.

    False for a call that was never started, and is in doubt only because another call of its act is in doubt.
    """
    if entry.status != "in_doubt":
        return entry.status == "started"
    return is_own or not entry.matches or entry.settled == "rerun"


def next_try(entry: Entry) -> Entry:
    """The entry of the next try of a call in doubt.

    Each try of a call with an act has its own entry, so the claim changes with each try. A call that read the claim of
    an earlier try can then not replace it.
    """
    if entry.act is None:
        return entry
    entry = replace(entry, ended_at=None, replayed=(0, 0))
    if entry.matches_thread:  # the act of another thread is now one of this thread
        return replace(entry, matches=0, matches_thread=0)
    return replace(entry, number=0, matches=entry.matches or entry.number)


def take_over(store: Store, thread: int, entry: Entry) -> None:
    """Give the claim of an act to an entry whose outcome has just become known.

    The call that has the claim keeps it if it has done the act, or does it now. An entry that has not done the act
    takes the claim only from the call that it was in doubt about. If this process dies first, the next call of the act
    decides again.
    """
    claimed = None if entry.act is None else claim_of(store, entry.act)
    if claimed is None or claimed.status in ("done", "under_way"):
        return
    is_its_doubt = (claimed.row.thread, claimed.row.number) == (entry.matches_thread or thread, entry.matches)
    if entry.status == "done" or (is_its_doubt and claimed.status in ("in_doubt", "deleted")):
        store.put_act(claimed.row.key, claimed.row, ActRow(claimed.row.key, thread, entry.number))


def require_act_not_done(store: Store, thread: int, entry: Entry) -> None:
    """Conflict if another call has done the act of this entry, or does it now: it cannot be settled as not done."""
    claimed = None if entry.act is None or not entry.matches else claim_of(store, entry.act)
    if claimed is None or (claimed.row.thread, claimed.row.number) == (thread, entry.number):
        return
    if claimed.status in ("done", "under_way"):
        does = "has done the same act" if claimed.status == "done" else "does the same act at this moment"
        raise Conflict(
            f"{entry.name} (call {entry.number}) cannot be settled in this way: {_shown(store, claimed)} {does}; "
            "nothing was changed. Resume the run: it gets the result of that call."
        )


def require_recorded(store: Store, claimed: ClaimedAct, tool: str) -> None:
    """HoldfastError if an act was done and its result was not recorded."""
    if claimed.entry is not None and claimed.entry.status == "unstored":
        raise HoldfastError(
            f"{tool} was not called: {_shown(store, claimed)} did the same act, but its result could not be recorded "
            f"({claimed.entry.error}). Settle that call with hf.settle, then resume this run."
        )


# -- for people ---------------------------------------------------------------------------------------------------


def list_acts(store: Store, tool: str | None) -> Iterator[Act]:
    """The claimed acts, all or of one tool, in no particular order."""
    prefix = b"" if tool is None else tool_key(store.hashing, tool)
    after: bytes | None = None
    names: dict[int, str | None] = {}
    while page := store.acts(prefix=prefix, after=after, limit=_PAGE):
        for row in page:
            yield _act_of(store, _claimed(store, row), names)
        after = page[-1].key


def release(context: Context, act: Act | str, by: str, reason: str, *, force: bool) -> None:
    """Record that an act may happen again. NotFound if the act is not claimed.

    Conflict if the act is under way, if its call may still act (unless `force`), or if another call has claimed the act
    since the given record was listed.
    """
    store = context.store
    for name, text in (("by", by), ("reason", reason)):
        checked_text(f"release: {name}", text, "; nothing was changed")
    claimed = claim_of(store, _key_of(act))
    if claimed is None:
        raise NotFound("this act is not claimed; nothing was changed. hf.acts() lists the claimed acts.")
    call = claimed.row.number, thread_name(store, claimed.row.thread)
    if isinstance(act, Act) and claimed.entry is not None and (act.number, act.thread) != call:
        raise Conflict(
            f"{_shown(store, claimed)} has claimed the act since it was listed; nothing was changed. List it again "
            "with hf.acts()."
        )
    if claimed.status == "under_way":
        raise Conflict("the act is under way; nothing was changed. Wait until its call has ended, or cancel its run.")
    if claimed.status in FREE:
        return
    if claimed.entry is None:
        details = {"act": claimed.row.key.hex(), "reason": reason}
        record_action(context, by, "release", details, agent="hf.release")
        store.put_act(claimed.row.key, claimed.row, None)
    else:
        if claimed.status == "in_doubt" and not force:
            require_cannot_act(claimed.entry, store.clock(), "Release it later")
        is_ended = claimed.status == "done"
        if not is_ended and claimed.run is not None and not is_free(store, claimed.run):
            raise Conflict(
                f"{_shown(store, claimed)} is in doubt, and a process that holds its run may settle it; nothing was "
                "changed. Release the act when the run has ended."
            )
        # The store refuses this if the status has changed meanwhile or, for a call in doubt, the record of its run.
        by, reason = context.redaction.value(by), context.redaction.value(reason)
        released = replace(claimed.entry, released=Release(by, reason, now()))
        store.post(claimed.row.thread, released, status=claimed.entry.status, run=None if is_ended else claimed.run)


def _key_of(act: Act | str) -> bytes:
    text = act.id if isinstance(act, Act) else act
    try:
        if type(text) is str and len(text) == _KEY_DIGITS:
            return bytes.fromhex(text)
    except ValueError:
        pass
    raise InvalidArgument("act must be a record or an id that hf.acts() returned")


def _act_of(store: Store, claimed: ClaimedAct, names: dict[int, str | None]) -> Act:
    row, entry = claimed.row, claimed.entry
    if entry is None:
        return Act(id=row.key.hex(), status=claimed.status, number=row.number)
    if row.thread not in names:
        names[row.thread] = thread_name(store, row.thread)
    tool, identity = entry.identity or (None, None)
    released = entry.released
    return Act(
        id=row.key.hex(),
        status=claimed.status,
        number=row.number,
        thread=names[row.thread],
        tool=tool,
        identity=identity,
        started_at=moment(entry.started_at),
        ended_at=None if entry.ended_at is None else moment(entry.ended_at),
        arguments=None if entry.call is None else msgpack.decode(entry.call),
        result=None if entry.result is None else msgpack.decode(entry.result),
        by=None if released is None else released.by,
        reason=None if released is None else released.reason,
    )


def thread_name(store: Store, number: int) -> str | None:
    """The name of the thread with a number; None if it was deleted."""
    for found in store.numbered(after=number - 1, limit=1):
        if found.number == number and not isinstance(found.name, Damaged):
            return found.name
    return None


def _shown(store: Store, claimed: ClaimedAct) -> str:
    """The call that has a claim, in a message."""
    return f"call {claimed.row.number} of thread {quoted(thread_name(store, claimed.row.thread) or '')}"


def under_way_error(store: Store, claimed: ClaimedAct, tool: str, thread: str) -> ActUnderWay:
    """The error of a call in a thread if another call does the same act."""
    return ActUnderWay(
        f"{tool} was not called: {_shown(store, claimed)} does the same act at this moment and has not ended. Resume "
        f"the run of thread {quoted(thread)} with hf.run when that call has ended.",
        thread_name(store, claimed.row.thread) or "",
        claimed.row.number,
    )
