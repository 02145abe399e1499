"""Handlers: the functions that workers call with a run, what @handler declares for them, and which runs are theirs."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.codec.typed import state_type
from holdfast.errors import HoldfastError, InvalidArgument, LeaseHeld
from holdfast.runs.arguments import checked_count
from holdfast.runs.claim import ClaimRequest, ClaimTerms
from holdfast.runs.context import Supervisor
from holdfast.runs.drivers import is_async
from holdfast.runs.earlier_calls import CallMode
from holdfast.runs.guards import Guard, checked_guards
from holdfast.runs.record import UNFINISHED, each_run, handler_of, is_free
from holdfast.runs.run import Run, RunBlock
from holdfast.runs.status import info_of
from holdfast.runs.tools import Tools
from holdfast.stores.contract_runs import ClaimLimit, RunRow
from holdfast.threads.context import Context
from holdfast.threads.scan import thread_named
from holdfast.threads.thread import checked_version
from holdfast.types import RunInfo

Handler = Callable[[Any], Any]
Entered = Callable[[], AbstractContextManager[None]]

_ATTRIBUTE: Final = "__holdfast_handler__"
F = TypeVar("F", bound=Callable[..., Any])


class HandlerOptions(msgspec.Struct, frozen=True):
    """The options of a handler's runs, as `handler` declares them."""

    guards: tuple[Guard, ...] = ()
    type: Any = None
    schema_version: int | None = None
    concurrency: int | None = None
    rate: Rate | None = None

    def request(
        self,
        context: Context,
        name: str,
        terms: ClaimTerms,
        tools: Tools,
        row: RunRow | None,
        supervisor: Supervisor | None = None,
        effects: CallMode | None = None,
    ) -> ClaimRequest:
        """The request to claim a run for the handler, if its record is still this one; None if there is no run yet."""
        return ClaimRequest(
            context,
            name,
            terms,
            tools=tools,
            supervisor=supervisor,
            expect=row,
            type=self.type,
            schema_version=self.schema_version,
            guards=self.guards,
            effects=effects,
            limit=None if row is None else self._limit(row),
        )

    def _limit(self, row: RunRow) -> ClaimLimit | None:
        """The limit of claims for the handler of a run."""
        name = handler_of(row)
        if name is None or (self.concurrency is None and self.rate is None):
            return None
        limit = ClaimLimit(name, self.concurrency)
        return limit if self.rate is None else replace(limit, claims=self.rate.times, within=self.rate.within)


class Rate(NamedTuple):
    """A number of times within a number of milliseconds."""

    times: int
    within: int

    @classmethod
    def of(cls, text: object) -> Rate:
        """Read a rate like "10/minute". InvalidArgument for any other text."""
        found = _RATE.fullmatch(text) if isinstance(text, str) else None
        if found is None or not 1 <= int(found[1]) <= _MOST_TIMES:
            raise InvalidArgument(
                f'rate must be like "10/minute": a number from 1 to {_MOST_TIMES}, and second, minute, hour or day'
            )
        return cls(int(found[1]), _UNITS[found[2]] * 1000)


_UNITS: Final = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_RATE: Final = re.compile(rf"([0-9]{{1,6}})/({'|'.join(_UNITS)})")
_MOST_TIMES: Final = 1_000  # the store keeps the time of each


def handler(
    *,
    guards: Iterable[Guard] = (),
    type: Any = None,
    schema_version: int | None = None,
    concurrency: int | None = None,
    rate: str | None = None,
) -> Callable[[F], F]:
    """Declare the guards of a handler's runs, the type and schema version of their states, and its limits.

    `guards`, `type` and `schema_version` are as for `hf.run`. In a worker, the handler's guards replace the worker's
    guards of the same kind. All workers that share the store hold at most `concurrency` runs of the handler at a time,
    and start or resume at most so many within a time: with `rate="10/minute"`, at most 10 in any 60 seconds. The
    function itself is not changed. InvalidArgument as for `hf.run`, and for limits that are not valid.

    >>> from holdfast import Budget
    >>> @handler(guards=[Budget(steps=20)], concurrency=4, rate="10/minute")
    ... def shopper(run): ...
    """
    checked = HandlerOptions(
        checked_guards(guards),
        type,
        checked_version(schema_version),
        None if concurrency is None else checked_count("concurrency", concurrency),
        None if rate is None else Rate.of(rate),
    )
    if checked == HandlerOptions():
        raise InvalidArgument("handler needs at least one of guards=, type=, schema_version=, concurrency= and rate=")
    if type is not None:
        state_type(type)

    def declare(function: F) -> F:
        if not callable(function):
            raise InvalidArgument("a handler must be a function of a run")
        try:
            setattr(function, _ATTRIBUTE, checked)
        except AttributeError as error:  # a bound method, a builtin
            raise InvalidArgument(
                "holdfast.handler cannot declare options for an object without attributes, such as a method; nothing "
                "was declared. Wrap it in a function."
            ) from error
        return function

    return declare


def options_of(function: Callable[..., Any], common: tuple[Guard, ...]) -> HandlerOptions:
    """The options of a handler's runs. A guard that the handler declares replaces the common guard of its kind."""
    while isinstance(function, functools.partial) and not hasattr(function, _ATTRIBUTE):
        function = function.func
    options: HandlerOptions = getattr(function, _ATTRIBUTE, _DEFAULT)
    kinds = {type(guard) for guard in options.guards}
    guards = (*options.guards, *(guard for guard in common if type(guard) not in kinds))
    return replace(options, guards=guards)


_DEFAULT: Final = HandlerOptions()


class Handlers:
    """The handlers of a program, and which runs they are for."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        versions: Collection[str | None] | None,
        guards: Iterable[Guard],
        built_in: Mapping[str, Handler] = MappingProxyType({}),
    ) -> None:
        """`built_in` handlers are for runs of Holdfast itself, of any version."""
        if (
            not isinstance(handlers, Mapping)
            or not handlers
            or not all(type(name) is str and callable(handler) for name, handler in handlers.items())
        ):
            raise InvalidArgument("handlers must be a dict of names and functions of a run, with at least one")
        if isinstance(versions, str) or not all(type(each) in (str, type(None)) for each in versions or ()):
            raise InvalidArgument("versions must be a list of strings; None in it stands for runs without a version")
        self._handlers = dict(handlers)
        self._versions = None if versions is None else frozenset(versions)
        self._guards = checked_guards(guards)
        self._built_in = built_in

    def of(self, row: RunRow) -> Handler | None:
        """The handler of a run; None if it is not for this program. Children are resumed by their parents."""
        built_in = self._built_in.get(row.handler or "")
        if built_in is not None:
            return built_in
        if row.parent is not None or (self._versions is not None and row.version not in self._versions):
            return None
        return self._handlers.get(handler_of(row) or "")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the handlers, with the built-in ones."""
        return (*self._handlers, *self._built_in)

    @property
    def has_async(self) -> bool:
        return any(map(is_async, self._handlers.values()))

    def options(self, handler: Handler) -> HandlerOptions:
        """The options of a handler's runs here."""
        return options_of(handler, self._guards)


# -- running one ----------------------------------------------------------------------------------------------------


def serve(request: ClaimRequest, handler: Handler, entered: Entered) -> None:
    """Claim a run, call its handler inside the context manager `entered()`, and finish the run."""
    with RunBlock(request) as run:
        with entered():
            result = _handled(handler, run)
        if run.status == "running":
            run.finish(result)


def _handled(handler: Handler, run: Run, *, may_exit: bool = False) -> Any:
    try:
        result = handler(run)
    except BaseException as error:
        failure = failure_of(error)
        if failure is None or (may_exit and isinstance(error, SystemExit)):
            raise
        raise failure from error
    if inspect.iscoroutine(result):
        result.close()
        raise HoldfastError("the handler returned a coroutine, which was not awaited; declare it with async def")
    return result


def failure_of(error: BaseException) -> HoldfastError | None:
    """The error to raise instead of one that must end its handler, but not the worker."""
    # CancelledError by its name: to import asyncio takes longer than to import Holdfast.
    if isinstance(error, SystemExit | GeneratorExit) or type(error).__name__ == "CancelledError":
        return HoldfastError(
            f"the handler ended with {type(error).__name__}, so the run failed; to end a run on purpose, call run.halt"
        )
    return None


# -- resuming interrupted runs ------------------------------------------------------------------------------------


class Recovery:
    """The interrupted runs for which a program has handlers, each to be resumed once."""

    def __init__(self, context: Context, tools: Tools, handlers: Handlers, *, lease: float, attempts: int) -> None:
        self._attempts = checked_count("attempts", attempts)
        self._terms = ClaimTerms(lease=lease)
        self._context = context
        self._tools = tools
        self._handlers = handlers

    def due(self) -> list[tuple[ClaimRequest, Handler]]:
        """The requests to claim them. A run that failed in so many attempts is left to a person."""
        store = self._context.store
        found: list[tuple[ClaimRequest, Handler]] = []
        for name, row in each_run(store, UNFINISHED):
            handler = self._handlers.of(row)
            if handler is not None and row.attempt < self._attempts and is_free(store, row):
                options = self._handlers.options(handler)
                request = options.request(self._context, name, self._terms, self._tools, row)
                found.append((request, handler))
        return found

    def info(self, request: ClaimRequest) -> Iterator[RunInfo]:
        """The status of a run that was resumed, unless its thread was dropped meanwhile."""
        thread = thread_named(self._context.store, request.thread)
        found = None if thread is None else info_of(self._context.store, thread)
        if found is not None:
            yield found

    def run(self) -> list[RunInfo]:
        """Resume the runs one after the other. Return the status of each afterwards."""
        if self._handlers.has_async:
            raise InvalidArgument("recover cannot await async handlers; use hf.aio.recover")
        resumed: list[RunInfo] = []
        for request, handler in self.due():
            if resume(request, handler):
                resumed += self.info(request)
        return resumed


def resume(request: ClaimRequest, handler: Handler) -> bool:
    """Resume a run. Return False if another process was faster. If the handler fails, the run's record says why."""
    is_claimed = False
    try:
        with RunBlock(request) as run:
            is_claimed = True
            # Unlike in a worker, a SystemExit may be that of a signal, which ends the program.
            result = _handled(handler, run, may_exit=True)
            if run.status == "running":
                run.finish(result)
    except Exception as error:  # noqa: BLE001 - the other runs must not wait for this one
        return is_claimed or not isinstance(error, LeaseHeld)
    return True
