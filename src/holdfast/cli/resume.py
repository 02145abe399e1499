"""Resume the run of one thread, as a worker would. Recorded calls are replayed from the journal, not repeated.

APP names the handlers, as for `holdfast worker`. A submitted run is resumed by the handler it was submitted for; any
other run by --handler, or by the only handler in APP. Exits with 0 if the run is completed or waits for an answer, 1 if
the handler raised, 4 if another process holds the run, 5 if it waits for a call in doubt to be settled.
"""

from __future__ import annotations

import traceback
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

from holdfast.cli.application import load_application, load_tools
from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.store import add_store, existing, open_store
from holdfast.cli.talk import nearest, say
from holdfast.cli.worker import error_text, lease_of
from holdfast.errors import Conflict, InvalidArgument, NotFound
from holdfast.handle import Holdfast
from holdfast.looking.data import data_of
from holdfast.looking.nearest import existing as existing_thread
from holdfast.runs.claim import Terms
from holdfast.runs.drivers import is_async
from holdfast.runs.handlers import options_of
from holdfast.runs.run import RunBlock
from holdfast.runs.status import result_in
from holdfast.stores.contract_runs import RunRow
from holdfast.text import quoted
from holdfast.types import PendingQuestion

Handlers = dict[str, Callable[[Any], Any]]

_NAME = "holdfast resume"
_ASKED = ("name", "about", "effect", "step")


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("app", metavar="APP", help="the handlers, as module:attribute")
    parser.add_argument("thread", metavar="THREAD", help="the thread of the run")
    parser.add_argument("--handler", metavar="NAME", help="the handler to use, for a run that was not submitted")
    parser.add_argument("--tools", metavar="APP", help="tools that the run calls by name: a list of functions")
    parser.add_argument(
        "--lease", metavar="SECONDS", type=lease_of, default=30.0, help="as for `holdfast worker` (default: 30)"
    )
    parser.add_argument("--traceback", action="store_true", help="show the full traceback if the handler raises")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the result as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    existing(arguments)
    application = load_application(arguments.app)
    tools = [] if arguments.tools is None else load_tools(arguments.tools)
    with open_store(arguments, tools=tools) as hf:
        thread = existing_thread(hf, arguments.thread)
        row = hf.context.store.run(thread.position.thread)
        if row is None:
            raise NotFound(f"thread {quoted(thread.name)} has no run to resume")
        if row.parent is not None:
            raise Conflict(
                f"{quoted(thread.name)} is a child run; nothing was resumed. Resume its parent {quoted(row.parent)}."
            )
        failure: BaseException | None = None
        if row.status != "completed":
            handler = _handler(arguments, row, application(hf))
            failure = _Resuming(hf, arguments, row, handler).run()
        after = hf.context.store.run(thread.position.thread) or row
        question = next((each for each in hf.waiting() if each.thread == thread.name), None)
    return _tell(arguments, after, question, result_in(after), failure)


def _handler(arguments: Namespace, row: RunRow, handlers: Handlers) -> Callable[[Any], Any]:
    name = arguments.handler or row.handler or (next(iter(handlers)) if len(handlers) == 1 else None)
    if name is None:
        raise InvalidArgument(f"the run has no handler; pass --handler with one of {', '.join(handlers)}")
    if row.handler is not None and name != row.handler:
        raise InvalidArgument(f"the run was submitted for handler {quoted(row.handler)}, not {quoted(name)}")
    if name not in handlers:
        known = nearest(name, handlers) or f"; it has {', '.join(handlers)}"
        raise InvalidArgument(f"{arguments.app} has no handler {name!r}{known}")
    return handlers[name]


class _Resuming:
    """A run to resume, and its handler."""

    def __init__(self, hf: Holdfast, arguments: Namespace, row: RunRow, handler: Callable[[Any], Any]) -> None:
        self._handler = handler
        self._is_claimed = False
        terms = Terms(lease=arguments.lease, version=row.version, turn=row.turn)
        self._request = options_of(handler, ()).request(hf.context, arguments.thread, terms, hf.tools, row)

    def run(self) -> BaseException | None:
        """Call the handler and return what it raised, if anything. Raises if the run cannot be claimed."""
        try:
            if is_async(self._handler):
                import asyncio  # noqa: PLC0415 - slow to import, and only async handlers need it

                asyncio.run(self._serve_async())
            else:
                self._serve()
        except (Exception, SystemExit) as error:
            if not self._is_claimed:
                raise
            return error
        return None

    def _serve(self) -> None:
        with RunBlock(self._request) as run:
            self._is_claimed = True
            result = self._handler(run)
            if run.status == "running":
                run.finish(result)

    async def _serve_async(self) -> None:
        from holdfast.aio.run import AsyncRunBlock  # noqa: PLC0415 - as for asyncio

        async with AsyncRunBlock(self._request) as run:
            self._is_claimed = True
            result = await self._handler(run)
            if run.status == "running":
                await run.finish(result)


def _tell(
    arguments: Namespace, run: RunRow, question: PendingQuestion | None, result: Any, failure: BaseException | None
) -> Exit:
    is_in_doubt = question is not None and question.about == "in doubt"
    if failure is not None:
        if arguments.traceback:
            say("".join(traceback.format_exception(failure)).rstrip())
        told = error_text(failure, is_shown=arguments.traceback)
        say(f"{_NAME}: the handler failed on thread {quoted(arguments.thread)}: {told}")
    if arguments.json:
        ended = {"thread": arguments.thread, "status": run.status, "attempt": run.attempt, "result": data_of(result)}
        asked = None if question is None else {key: data_of(getattr(question, key)) for key in _ASKED}
        put_json({**ended, "waits_for": asked})
    else:
        waits = ""
        if question is not None:
            command = f"settle {arguments.thread} {question.effect}" if is_in_doubt else f"answer {arguments.thread}"
            waits = f" for {quoted(question.name)}: holdfast {command} …"
        put(f"{quoted(arguments.thread)} is {run.status}{waits}")
    if is_in_doubt:
        return Exit.IN_DOUBT
    return Exit.OK if failure is None and run.status not in ("failed", "dead") else Exit.ERROR
