"""Running agents: worker, resume, submit, result and schedules."""

from __future__ import annotations

import functools
import json
import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, get_args

import click

from holdfast.cli.command import (
    APP,
    FORM,
    Output,
    address,
    argument,
    count,
    duration,
    lease_option,
    option,
    thread,
    tools_option,
    value_in,
    verb,
)
from holdfast.cli.layout import fields, json_line
from holdfast.cli.location import Location
from holdfast.cli.named_objects import Handlers, load, load_application, load_tools
from holdfast.cli.terminal import Exit, did_you_mean, put_json, say, worded
from holdfast.errors import Conflict, InvalidArgument, LeaseHeld, LeaseLost, NotFound, StoreError
from holdfast.handle import Holdfast
from holdfast.inspect import data_of, existing, graph_actions, kin
from holdfast.inspect.graphs import is_graph
from holdfast.runs.claim import ClaimRequest, ClaimTerms
from holdfast.runs.drivers import is_async
from holdfast.runs.earlier_calls import CallMode
from holdfast.runs.handlers import options_of, serve
from holdfast.runs.run import RunBase
from holdfast.runs.worker import Worker
from holdfast.text import line, quoted, span, stamp
from holdfast.types import PendingQuestion, RunInfo, ScheduleInfo

_LISTED: Final = 10  # handlers to list in the first line
_PACKAGE: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
_HARMLESS: Final = (Conflict, InvalidArgument, LeaseHeld, LeaseLost, NotFound, StoreError)


# -- worker ------------------------------------------------------------------------------------------------------------


@verb()
@argument("APP")
@tools_option("tools that runs call by name")
@option("--concurrency N", "runs at a time, each in a thread", count(1), 1)
@option("--version V", 'take only runs of this version, "" for runs without one', name="versions", multiple=True)
@lease_option
@option("--attempts N", "give up after N attempts without a new checkpoint", count(1), 5)
@option("--health HOST:PORT", "serve /live and /ready there, with counts only; port 0: any", address)
@option("--until-idle", "end when no run is left to take")
@option("--traceback", "show full tracebacks of handlers, with the data of the runs", name="tracebacks")
def worker(
    location: Location,
    as_json: bool,
    app: str,
    tools: str | None,
    concurrency: int,
    versions: tuple[str, ...],
    lease: float,
    attempts: int,
    health: tuple[str, int] | None,
    until_idle: bool,
    tracebacks: bool,
) -> Exit:
    """Run queued runs, and resume runs whose process died, until stopped.

    APP names the handlers as "module:attribute": a dict of handler names and functions, or a function that returns one.
    The function takes no arguments, or one called hf, the handle. Modules in the current folder can be imported. On
    SIGTERM or Ctrl-C the worker finishes the current step of each run and releases it; another worker resumes it.
    --version may be repeated. With --json, a line of JSON is written when the worker starts.
    """
    # Loaded before the store is opened: a mistyped name must not create an empty store.
    application = load_application(app)
    functions = load_tools(tools)
    if location.url == "memory:":
        raise InvalidArgument('a "memory:" store ends with its process, so no run could be submitted to this worker')
    with location.open(tools=functions) as hf:
        handlers = application(hf)
        made = hf.worker(
            {name: _watched(name, each, attempts, tracebacks) for name, each in handlers.items()},
            concurrency=concurrency,
            versions=[version or None for version in versions] if versions else None,
            lease=lease,
            attempts=attempts,
            health=health,
        )
        # An empty store is most often a mistyped address, at which the worker would wait in silence.
        empty = " (empty)" if next(hf.threads(limit=1), None) is None else ""
        listed = ", ".join([*list(handlers)[:_LISTED], *(["…"] if len(handlers) > _LISTED else [])])
        taken = " of version " + " or ".join(each or '""' for each in versions) if versions else ""
        where = f"store {location}, namespace {location.namespace}{empty}"
        say(f"holdfast worker: serving {listed} from {app}{taken}, {concurrency} at a time; {where}")
        if made.health is not None:
            host, port = made.health
            say(f"holdfast worker: health at http://{f'[{host}]' if ':' in host else host}:{port}/ready and /live")
        if as_json:
            put_json({"handlers": list(handlers), "store": str(location), "health": made.health})
        with _interruptible(made) as interrupted, _short_logs("worker", tracebacks):
            made.run(until_idle=until_idle)
        ended = "stopped; all runs are released" if made.is_stopping() else "no runs left"
        say(f"holdfast worker: {ended}")
    return Exit.INTERRUPTED if interrupted.is_set() else Exit.OK


def _watched(name: str, handler: Callable[[Any], Any], attempts: int, tracebacks: bool) -> Callable[[Any], Any]:
    """Wrap a handler to report on stderr what it raises; the worker itself continues silently."""

    @contextmanager
    def watching(run: RunBase) -> Generator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:
            if tracebacks:
                say("".join(traceback.format_exception(error)).rstrip())
            end = "the run is given up" if run.attempt >= attempts else "it will be retried"
            attempt = f"attempt {run.attempt} of {attempts}; {end}"
            what = error_text(error, is_shown=tracebacks)
            say(f"holdfast worker: {name} failed on thread {run.thread!r} ({attempt}): {what}")
            raise

    # functools.wraps keeps what @handler declared.
    @functools.wraps(handler)
    def watched(run: RunBase) -> Any:
        with watching(run):
            return handler(run)

    @functools.wraps(handler)
    async def watched_async(run: RunBase) -> Any:
        with watching(run):
            return await handler(run)

    return watched_async if is_async(handler) else watched


def error_text(error: BaseException, *, is_shown: bool) -> str:
    """Describe an error without its message, which may contain data of the run, unless the error is Holdfast's own."""
    kind = type(error).__name__
    if isinstance(error, _HARMLESS):
        return f"{kind}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames[1:] if not frame.filename.startswith(_PACKAGE)]
    where = f" in {own[-1].filename}, line {own[-1].lineno}" if own else ""
    return f"{kind}{where}" + ("" if is_shown else "; --traceback shows its message")


@contextmanager
def _short_logs(verb: str, tracebacks: bool) -> Generator[None]:
    """Report warnings of the library in one line, without tracebacks, which may contain data of the run.

    An application that has configured logging gets them as they are.
    """
    import logging  # noqa: PLC0415 - slow to import

    class Short(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(f"holdfast {verb}: {worded(record.getMessage().partition(chr(10))[0])}")

    logger, handler = logging.getLogger("holdfast"), Short()
    if tracebacks or logger.handlers or logging.getLogger().handlers:
        yield
        return
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def _interruptible(worker: Worker) -> Generator[threading.Event]:
    """Make Ctrl-C stop the worker after the current steps, and a second Ctrl-C end the process at once.

    Yields an event that is set by Ctrl-C. Nothing is raised in the main thread, which joins the working threads: up to
    Python 3.12 a `join` that is interrupted by an exception treats its thread as ended.
    """
    interrupted = threading.Event()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if interrupted.is_set():
            os._exit(Exit.INTERRUPTED)
        interrupted.set()
        worker.stop()
        say("holdfast worker: stopping after the current steps; press Ctrl-C again to stop at once")

    with _handling(signal.SIGINT, signal.default_int_handler, interrupt):
        yield interrupted


@contextmanager
def _handling(number: signal.Signals, usual: Any, handler: Any) -> Generator[None]:
    """Handle a signal meanwhile, unless the host program has replaced its `usual` handler."""
    is_ours = threading.current_thread() is threading.main_thread() and signal.getsignal(number) is usual
    if is_ours:
        signal.signal(number, handler)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(number, usual)


# -- resume ------------------------------------------------------------------------------------------------------------


@verb()
@argument("APP")
@thread("THREAD", "name")
@option("--handler NAME", "the handler to use, for a run that was not submitted")
@tools_option("tools that the run calls by name")
@option("--effects MODE", "live, recorded or ask (default: live, and ask on a fork)", click.Choice(get_args(CallMode)))
@lease_option
@option("--traceback", "show the full traceback if the handler raises", name="tracebacks")
def resume(
    location: Location,
    app: str,
    name: str,
    handler: str | None,
    tools: str | None,
    effects: CallMode | None,
    lease: float,
    tracebacks: bool,
) -> Output:
    """Resume the run of one thread, as a worker would, or run a fork. Recorded calls are replayed, not repeated.

    APP names the handlers, as for `holdfast worker`. A submitted run is resumed by the handler it was submitted for, a
    fork by that of the thread it was forked from; any other run by --handler, or by the only handler in APP. For a
    thread of LangGraph, APP is its graph.

    --effects says what tools that act do: "live" calls them, "recorded" answers only from recorded results, "ask" asks
    a person before an irreversible call. On SIGTERM or Ctrl-C the run is released, and can be resumed again.

    Exits with 0 if the run is completed or waits for an answer, 1 if the handler raised, 4 if another process holds the
    run, 5 if it waits for a call in doubt to be settled or to be allowed.
    """
    location.existing()
    with location.open() as hf:
        if is_graph(hf, name):
            return _resume_graph(hf, app, name)
    application = load_application(app)
    functions = load_tools(tools)
    with location.open(tools=functions) as hf:
        row = existing(hf, name)
        run = hf.context.store.run(row.position.thread)
        origin = None if run is not None else _origin(hf, row.name)
        if run is not None and run.parent is not None:
            raise Conflict(
                f"{quoted(row.name)} is a child run; nothing was resumed. Resume its parent {quoted(run.parent)}."
            )
        failure: BaseException | None = None
        if run is None or run.status != "completed":
            submitted = run.handler if run is not None else origin
            function = _handler(app, handler, submitted, application(hf), is_fork=run is None)
            terms = ClaimTerms(lease=lease)
            if run is not None:
                terms = ClaimTerms(lease=lease, version=run.version, turn=run.turn)
            request = options_of(function, ()).request(hf.context, row.name, terms, hf.tools, run, effects=effects)
            with _short_logs("resume", tracebacks), _stoppable(row.name):
                failure = _called(request, function)
        info = hf.run_info(row.name)
        question = next((each for each in hf.waiting() if each.thread == row.name), None)
    if failure is not None:
        if tracebacks:
            say("".join(traceback.format_exception(failure)).rstrip())
        what = error_text(failure, is_shown=tracebacks)
        say(f"holdfast resume: the handler failed on thread {quoted(name)}: {what}")
    return _ended(name, info, question, failure)


@contextmanager
def _stoppable(name: str) -> Generator[None]:
    """Let SIGTERM end a run as Ctrl-C does: it is released. By default it would count as a failure of the handler."""
    with _handling(signal.SIGTERM, signal.SIG_DFL, signal.default_int_handler):
        try:
            yield
        except KeyboardInterrupt:
            say(f"holdfast resume: stopped; {quoted(name)} is released. Run the command again to resume it.")
            raise


def _resume_graph(hf: Holdfast, app: str, name: str) -> Output:
    found = graph_actions.resume(graph_actions.runnable(load(app), hf, app), hf, name)
    told = f"{quoted(name)} is {found.status}{': holdfast inbox shows what to do' if found.questions else ''}"
    code = Exit.IN_DOUBT if found.status == "in doubt" else Exit.OK
    return Output({"thread": name, "status": found.status, "next": found.next}, told, code=code)


def _origin(hf: Holdfast, name: str) -> str | None:
    """Return the handler of the thread that a thread without a run was forked from. NotFound if it is not a fork."""
    forked = kin(hf, existing(hf, name))[0]
    if forked is None:
        raise NotFound(
            f"thread {quoted(name)} has no run to resume, and it is not a fork; nothing was changed. "
            "Fork it, and resume the fork."
        )
    origin = forked.rpartition("@")[0]  # "" if it was dropped; the fork keeps what it shares with it
    info = hf.run_info(origin) if origin else None
    return None if info is None else info.handler


def _handler(
    app: str, given: str | None, submitted: str | None, handlers: Handlers, *, is_fork: bool
) -> Callable[[Any], Any]:
    name = given or submitted or (next(iter(handlers)) if len(handlers) == 1 else None)
    if name is None:
        raise InvalidArgument(f"the run has no handler; pass --handler with one of {', '.join(handlers)}")
    if submitted is not None and name != submitted and not is_fork:
        raise InvalidArgument(f"the run was submitted for handler {quoted(submitted)}, not {quoted(name)}")
    if name not in handlers:
        known = did_you_mean(name, handlers) or f"; it has {', '.join(handlers)}"
        raise InvalidArgument(f"{app} has no handler {name!r}{known}")
    return handlers[name]


def _called(request: ClaimRequest, handler: Callable[[Any], Any]) -> BaseException | None:
    """Call the handler and return what it raised, if anything. Raises if the run cannot be claimed."""
    is_claimed = False

    @contextmanager
    def entered() -> Generator[None]:
        nonlocal is_claimed
        is_claimed = True
        yield

    try:
        if is_async(handler):
            import asyncio  # noqa: PLC0415 - slow to import, and only async handlers need it

            from holdfast.aio.worker import serve_async  # noqa: PLC0415

            asyncio.run(serve_async(request, handler, entered))
        else:
            serve(request, handler, entered)
    except (Exception, SystemExit) as error:
        if not is_claimed:
            raise
        return error
    return None


def _ended(name: str, info: RunInfo | None, question: PendingQuestion | None, failure: BaseException | None) -> Output:
    status, attempt, result = ("not started", 0, None) if info is None else (info.status, info.attempt, info.result)
    asked = None if question is None else fields(question, "name about effect step")
    told = f"{quoted(name)} is {status}"
    if question is not None:
        told = f"{told} for {quoted(question.name)}: holdfast inbox shows what to do"
    elif status == "completed":
        told = f"{told}: {json_line(result)}"
    elif status in ("failed", "dead"):
        told = f"{told}: holdfast inbox shows why"
    code = Exit.OK if failure is None and status not in ("failed", "dead") else Exit.ERROR
    if question is not None and question.about == "in doubt":
        code = Exit.IN_DOUBT
    data = {"thread": name, "status": status, "attempt": attempt, "result": result, "waits_for": asked}
    return Output(data, told, code=code)


# -- submit, result, schedules -----------------------------------------------------------------------------------------


@verb()
@argument("HANDLER")
@argument("THREAD", "name")
@option("--start STATE", f"the start state: {FORM}", required=True)
@option("--version V", "only workers of this version take the run")
@option("--priority N", "from 100 to -100; workers take higher ones first", count(-100, 100), 0)
def submit(location: Location, handler: str, name: str, start: str, version: str | None, priority: int) -> Output:
    """Queue a run for any worker that has the handler. Submitting it again with the same start changes nothing.

    HANDLER is the name of the handler in the workers, THREAD a new thread. The store is created if it does not exist.
    `holdfast worker APP` runs queued runs, and `holdfast result THREAD --wait 60` waits for the result.
    """
    state = value_in(start, "the start")
    if location.url == "memory:":
        raise InvalidArgument('a "memory:" store ends with its process, so no worker would see the run')
    with location.open() as hf:
        hf.submit(handler, name, start=state, version=version, priority=priority)
        info = hf.run_info(name)
    status, taken = (None, 0) if info is None else (info.status, info.priority)
    with_priority = f" with priority {taken}" if taken else ""
    told = f"{quoted(name)} is {status} for handler {quoted(handler)}{with_priority}"
    notes = [f"`holdfast worker APP` runs it; APP {APP}"] if status == "queued" else []
    return Output({"thread": name, "handler": handler, "status": status, "priority": taken}, told, notes)


@verb()
@thread("THREAD", "name")
@option(
    "--wait [TIME]",
    "wait for the result, at most this long: 90s, 45m, 12h; 90 means 90s",
    duration,
    is_flag=False,
    flag_value="52w",
)
@option("--turn ID", "the result of this turn")
def result(hf: Holdfast, name: str, wait: float | None, turn: str | None) -> Output:
    """Write the result of a completed run to stdout, as JSON.

    Exits with 4 if the run has no result yet, or will not have one because it failed or was halted.
    """
    existing(hf, name)
    found = data_of(hf.result(name, turn=turn, wait=wait or 0.0))
    return Output({"thread": name, "result": found}, json.dumps(found, indent=2))


@verb()
def schedules(hf: Holdfast) -> Output:
    """List the schedules, which `hf.schedule` makes: what each starts, and when."""
    found = list(hf.schedules())
    return Output({"schedules": found}, map(_schedule_line, found), [] if found else ["no schedules"])


def _schedule_line(schedule: ScheduleInfo) -> str:
    when = f"every {span(schedule.every)}" if schedule.every is not None else f"{schedule.cron} ({schedule.timezone})"
    last = "" if schedule.last is None else f", last {stamp(schedule.last)}"
    what = f"{line(schedule.name)}  {line(schedule.handler)}  {line(when)}"
    return f"{what}  next {stamp(schedule.next)}{last}"
