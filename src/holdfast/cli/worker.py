"""Run queued runs, and resume runs whose process died, until stopped.

APP names the handlers as "module:attribute": a dict of handler names and functions, or a function that returns one. The
function takes no arguments, or one called hf, the handle. Modules in the current folder can be imported. On SIGTERM or
Ctrl-C the worker finishes the current step of each run and releases it; another worker resumes it.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
import traceback
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from holdfast.cli.application import load_application, load_tools
from holdfast.cli.exits import Exit
from holdfast.cli.store import add_store, address, open_store, shown
from holdfast.cli.talk import say
from holdfast.errors import Conflict, InvalidArgument, LeaseHeld, LeaseLost, NotFound, StoreError
from holdfast.runs.claim import Terms
from holdfast.runs.drivers import is_async
from holdfast.runs.run import RunBase
from holdfast.runs.worker import Worker

_NAME = "holdfast worker"
_LISTED = 10  # handlers to list in the first line
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_HARMLESS = (Conflict, InvalidArgument, LeaseHeld, LeaseLost, NotFound, StoreError)


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("app", metavar="APP", help="the handlers, as module:attribute")
    add_store(parser)
    parser.add_argument(
        "--tools", metavar="APP", help="tools that runs call by name: a list of functions, as module:attribute"
    )
    parser.add_argument(
        "--concurrency", metavar="N", type=_count, default=1, help="runs at a time, each in a thread (default: 1)"
    )
    parser.add_argument(
        "--version",
        metavar="V",
        action="append",
        help='take only runs of this version, "" for runs without a version; may be repeated',
    )
    parser.add_argument(
        "--lease",
        metavar="SECONDS",
        type=lease_of,
        default=30.0,
        help="another worker takes over a run if this worker is silent for so long (default: 30)",
    )
    parser.add_argument(
        "--attempts",
        metavar="N",
        type=_count,
        default=5,
        help="give up a run after N attempts without a new checkpoint (default: 5)",
    )
    parser.add_argument(
        "--health",
        metavar="HOST:PORT",
        type=_address,
        help="serve GET /live and GET /ready at this address, with counts only; port 0 takes any free port",
    )
    parser.add_argument("--until-idle", action="store_true", help="end when no run is left to take")
    parser.add_argument(
        "--traceback",
        action="store_true",
        help="show full tracebacks of handlers; they may contain data of the runs",
    )


def run(arguments: Namespace) -> int:
    """See `Program`."""
    # Loaded before the store is opened: a mistyped name must not create an empty store.
    application = load_application(arguments.app)
    tools = [] if arguments.tools is None else load_tools(arguments.tools)
    if address(arguments) == "memory:":
        raise InvalidArgument('a "memory:" store ends with its process, so no run could be submitted to this worker')
    versions = None if arguments.version is None else [version or None for version in arguments.version]
    with open_store(arguments, tools=tools) as hf:
        handlers = application(hf)
        worker = hf.worker(
            {name: _watched(name, handler, arguments) for name, handler in handlers.items()},
            concurrency=arguments.concurrency,
            versions=versions,
            lease=arguments.lease,
            attempts=arguments.attempts,
            health=arguments.health,
        )
        is_empty = next(hf.threads(limit=1), None) is None
        say(f"{_NAME}: {_serving(arguments, list(handlers), is_empty=is_empty)}")
        if worker.health is not None:
            host, port = worker.health
            say(f"{_NAME}: health at http://{f'[{host}]' if ':' in host else host}:{port}/ready and /live")
        with _interruptible(worker) as interrupted:
            worker.run(until_idle=arguments.until_idle)
        ended = "stopped; all runs are released" if worker.is_stopping() else "no runs left"
        say(f"{_NAME}: {ended}")
    return Exit.INTERRUPTED if interrupted.is_set() else Exit.OK


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return number


def lease_of(text: str) -> float:
    try:
        return Terms(lease=float(text)).lease
    except InvalidArgument as error:
        raise ArgumentTypeError(f"{text!r}: {error}") from error
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds") from None


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit():
        raise ArgumentTypeError(f"{text!r} is not HOST:PORT, like 127.0.0.1:8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _serving(arguments: Namespace, names: list[str], *, is_empty: bool) -> str:
    listed = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
    versions = ""
    if arguments.version is not None:
        versions = " of version " + " or ".join(version or '""' for version in arguments.version)
    where = f"store {shown(address(arguments))}, namespace {arguments.namespace}"
    # An empty store is most often a mistyped address, at which the worker would wait in silence.
    empty = " (empty)" if is_empty else ""
    return f"serving {listed} from {arguments.app}{versions}, {arguments.concurrency} at a time; {where}{empty}"


def _watched(name: str, handler: Callable[[Any], Any], arguments: Namespace) -> Callable[[Any], Any]:
    """Wrap a handler to report on stderr what it raises; the worker itself continues silently."""

    @contextmanager
    def watching(run: RunBase) -> Generator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:
            if arguments.traceback:
                say("".join(traceback.format_exception(error)).rstrip())
            end = "the run is given up" if run.attempt >= arguments.attempts else "it will be retried"
            attempt = f"attempt {run.attempt} of {arguments.attempts}; {end}"
            told = error_text(error, is_shown=arguments.traceback)
            say(f"{_NAME}: {name} failed on thread {run.thread!r} ({attempt}): {told}")
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
        say(f"{_NAME}: stopping after the current steps; press Ctrl-C again to stop at once")

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interrupted  # the host program ignores or handles Ctrl-C itself
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
