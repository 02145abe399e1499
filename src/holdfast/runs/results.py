"""Results of calls: the type that a tool declares, results as plain data, and results that could not be recorded."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Final, NamedTuple

from holdfast.codec import msgpack
from holdfast.codec.members import is_plain, members
from holdfast.codec.registry import class_named, name_for
from holdfast.codec.storable import PLAIN
from holdfast.codec.typed import Misfit, StateType, state_type
from holdfast.errors import Damaged, InvalidArgument, OutcomeUnknown, Replaced, StoreError, Unsupported
from holdfast.redaction import Redaction
from holdfast.runs.record import CALLS
from holdfast.stores.contract_runs import Entry

PLAIN_TYPE: Final = ""
"""The type of a recorded result that is plain data, whatever type its tool declares."""

_ELSEWHERE: Final = ("langchain", "langchain_core", "langgraph")  # their adapter records results in its own way
_WAITED: Final = (abc.Awaitable, abc.Coroutine)


# -- the type that a tool declares --------------------------------------------------------------------------------


class Declared(NamedTuple):
    """The result type of a function: its return annotation. None if every result is plain data, or there is none.

    `is_pending` if a name in the annotation is not defined yet.
    """

    type: StateType | None = None
    is_pending: bool = False


def declared_result(function: Callable[..., Any], name: str) -> Declared:
    """The result type of a tool. InvalidArgument if its results cannot be stored: the tool must not act first."""
    try:
        annotation = _annotation(function)
    except NameError:
        return Declared(is_pending=True)
    except Exception:  # noqa: BLE001 - an annotation may be any expression
        return Declared()
    if is_plain(annotation):
        return Declared()
    try:
        return Declared(state_type(annotation))
    except InvalidArgument as refused:
        if any(_package(each) in _ELSEWHERE for each in members(annotation)):
            return Declared()
        if hasattr(function, "__wrapped__"):
            return Declared()  # a wrapper may return something else than the function whose annotations it has
        reason = str(refused).removeprefix("type= cannot be used: ")
        raise InvalidArgument(
            f"{name} is not a usable tool, because what it returns could not be recorded: {reason.rstrip('.')}. "
            "Nothing was called. Change the function's return annotation, or return plain data."
        ) from refused


def _annotation(function: Callable[..., Any]) -> Any:
    """The return annotation of a function; Any if it has none."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return Any
    if not hasattr(function, "__annotations__"):
        function = getattr(type(function), "__call__", function)  # noqa: B004 - an object that can be called
    if "return" not in getattr(function, "__annotations__", ()):
        return Any
    inner = inspect.unwrap(function)
    holder = types.SimpleNamespace(__annotations__={"return": function.__annotations__["return"]})
    names = {**getattr(inner, "__globals__", {}), **_closure(inner)}
    found = typing.get_type_hints(holder, names, include_extras=True)["return"]
    while typing.get_origin(found) in _WAITED:
        found = typing.get_args(found)[-1]
    return found


def _closure(function: Any) -> dict[str, Any]:
    """The variables of the functions around this one that it uses."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or cells is None:
        return {}
    found: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it is not set yet
            continue
    return found


def _package(kind: Any) -> str:
    return str(getattr(kind, "__module__", "")).partition(".")[0]


def require_storable(name: str, declared: StateType, redaction: Redaction) -> None:
    """InvalidArgument before a tool is called that returns a secret, unless secrets are redacted."""
    if declared.has_secrets and redaction.placeholder is None:
        raise InvalidArgument(
            f"{name} was not called: {declared.name} has a secret in it, which would be recorded as readable text. "
            "Pass redact= to holdfast.open to record [redacted] instead, or return the result without the secret."
        )


class Codec(StateType):
    """Converts the results of a call by functions, for classes that only an adapter knows.

    `schema` names the data and its version. It is recorded with each result.
    """

    __slots__ = ("_dumped", "_loaded", "schema")

    def __init__(self, schema: str, dump: Callable[[Any], Any], load: Callable[[Any], Any]) -> None:
        self.name = self.schema = schema
        self.has_secrets = False
        self._dumped = dump
        self._loaded = load

    def to_plain(self, state: Any, hidden: str | None = None) -> Any:
        return self._dumped(state)

    def from_plain(self, plain: Any) -> Any:
        return self._loaded(plain)

    fitted = from_plain


# -- results as they are recorded ---------------------------------------------------------------------------------


class Encoded(NamedTuple):
    """A result as it is recorded. `type` is for `Entry.type`; `conversion` restores the result from plain data."""

    data: bytes
    type: str | None
    conversion: StateType | None
    is_redacted: bool


def encoded_result(
    result: Any,
    conversion: StateType | None,
    redaction: Redaction,
    *,
    is_declared: bool = False,
    is_reported: bool = False,
) -> Encoded:
    """A result, redacted and encoded. Unsupported, with its path, if it cannot be recorded.

    `is_declared`: the type is the annotation of a tool that has acted. A result of another form is recorded if that is
    possible. `is_reported`: a person or a probe reported the result, maybe as the plain data of the type.
    """
    plain, kind = result, None
    if is_reported and conversion is not None and conversion.schema is not None:
        conversion = None  # only the tool itself returns that
    if conversion is not None or type(result) not in PLAIN:
        plain, kind, conversion = _with_type(result, conversion, redaction.placeholder, is_declared, is_reported)
    msgpack.check(plain, is_state=False)
    redacted = redaction.copy(plain) if conversion is None else redaction.restorable_copy(plain, conversion.from_plain)
    return Encoded(msgpack.encode(redacted), kind, conversion, redacted is not plain and redacted != plain)


def _with_type(
    result: Any, conversion: StateType | None, hidden: str | None, is_declared: bool, is_reported: bool
) -> tuple[Any, str | None, StateType | None]:
    """A result as plain data, with its type for `Entry.type` and what restores it."""
    refused: Unsupported | None = None
    if conversion is not None:
        try:
            return conversion.to_plain(result, hidden), conversion.schema, conversion
        except Unsupported as error:
            if not is_declared:
                raise
            refused = error
        if is_reported:
            try:
                conversion.from_plain(result)
            except InvalidArgument:
                pass
            else:
                return result, None, conversion
    kind = type(result)
    name = None if kind in PLAIN else name_for(kind)
    if name is not None:
        named = state_type(kind)
        return named.to_plain(result, hidden), name, named
    if refused is None:
        return result, None, None
    try:
        msgpack.check(result, is_state=False)
    except Unsupported:
        raise refused from None
    return result, PLAIN_TYPE, None


def refusal_of(row: Entry, result: Any, refused: Unsupported) -> Unsupported:
    """The error of a result that cannot be recorded, with what to change in the program."""
    problem = f"{row.name} was called, and its result cannot be recorded: {refused.problem}"
    if row.kind == "model" and isinstance(result, abc.Iterator | abc.AsyncIterator):
        problem = f"{row.name} returned a stream; use run.stream"
    elif row.kind == "model" and refused.undeclared is not None:
        problem += ", or pass type= to run.model"
    elif refused.undeclared is not None:
        problem += f", or annotate the function: -> {refused.undeclared}"
    return Unsupported(refused.path, problem)


def restored_result(row: Entry, plain: Any, conversion: StateType | None) -> Any:
    """The result of a journal entry, of its decoded plain data. InvalidArgument if it does not fit its type."""
    if conversion is not None and conversion.schema is not None and row.type != conversion.schema:
        if row.settled is None:
            raise InvalidArgument(
                f"the result of {row.name} (call {row.number}) is recorded as {row.type!r}, and this program reads "
                f"{conversion.schema!r}; it was not called again. Resume the run with the program that recorded it."
            )
        return plain  # a person or a probe reported it
    if row.type is not None and row.type != PLAIN_TYPE and conversion is None:
        conversion = _named(row, row.type)
    if conversion is None or row.type == PLAIN_TYPE or row.status == "given_up":
        return plain
    try:
        return conversion.fitted(plain)
    except Misfit as misfit:
        if row.settled == "person" and row.type is None:
            return plain  # the person who settled the call did not know its type
        raise InvalidArgument(
            f"the recorded result of {row.name} (call {row.number}) does not fit {conversion.name} at {misfit.path}; "
            "it was not called again. Resume the run with the program that recorded it, or with a type that fits."
        ) from misfit


def _named(row: Entry, name: str) -> StateType:
    try:
        return state_type(class_named(name))
    except InvalidArgument as unknown:
        raise InvalidArgument(
            f"the recorded result of {row.name} (call {row.number}) cannot be restored: {unknown}; it was not called "
            "again. Register the class, or resume the run with the program that recorded it."
        ) from unknown


# -- chunks of a stream -------------------------------------------------------------------------------------------


def chunk_types(types_of: Iterable[str | None]) -> str | None:
    """The types of a stream's chunks, for `Entry.type`: a line for each series of equal ones, its length and the type.

    None if all chunks are plain data.
    """
    series = [(kind, len(list(group))) for kind, group in groupby(types_of)]
    if not any(kind for kind, _ in series):
        return None
    return "\n".join(f"{count} {kind or PLAIN_TYPE}" for kind, count in series)


def restored_chunks(row: Entry, chunks: list[Any]) -> list[Any]:
    """The chunks of a journal entry, of its decoded plain data."""
    if row.type is None:
        return chunks
    named = _names(row.type)
    return [_chunk(row, next(named, PLAIN_TYPE), chunk) for chunk in chunks]


def _chunk(row: Entry, name: str, chunk: Any) -> Any:
    return chunk if name == PLAIN_TYPE else _named(row, name).from_plain(chunk)


def _names(lines: str) -> Iterator[str]:
    for line in lines.split("\n"):
        count, _, name = line.partition(" ")
        for _ in range(int(count) if count.isdecimal() else 0):
            yield name


# -- results that could not be recorded ---------------------------------------------------------------------------


def unrecorded_error(row: Entry, error: StoreError) -> StoreError:
    """The error of a call that ended and could not be recorded. That of the store may say that nothing was changed."""
    if row.kind not in CALLS or row.status == "not_done":
        return error
    kind = type(error) if type(error).__module__ == StoreError.__module__ else StoreError
    match error:
        case Damaged():
            advice = "Call hf.verify(), then hf.repair()."
        case Replaced() | OutcomeUnknown():
            advice = "Open the store again, then call hf.run again."
        case _:
            advice = "Make the store writable again, then call hf.run again."
    return kind(
        f"{row.name} was called, and its result could not be recorded: {_problem(error)}; {consequence(row)}. {advice}"
    )


def log_unrecorded(row: Entry, error: StoreError) -> None:
    """Log that a result cannot be recorded yet."""
    import logging  # noqa: PLC0415 - it takes long to import, and is rarely needed

    logging.getLogger("holdfast").warning(
        "the result of %s cannot be recorded and is tried again: %s", row.name, _problem(error)
    )


def _problem(error: StoreError) -> str:
    """The part of a store's message that names the failure. The rest is about the write, not about the call."""
    return f"{type(error).__name__}, {str(error).partition(';')[0]}"


def consequence(row: Entry) -> str:
    return "the call will be made again" if row.kind in ("model", "read") else "the call is in doubt"
