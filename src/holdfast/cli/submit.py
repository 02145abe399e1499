"""Queue a run for any worker that has the handler. Submitting it again with the same start changes nothing.

The store is created if it does not exist. `holdfast worker APP` runs queued runs.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.store import add_store, address, open_store
from holdfast.cli.values import FORM, given
from holdfast.errors import InvalidArgument
from holdfast.text import quoted
from holdfast.threads.scan import thread_named


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("handler", metavar="HANDLER", help="the name of the handler in the workers")
    parser.add_argument("thread", metavar="THREAD", help="the thread of the run, a new one")
    parser.add_argument("--start", metavar="STATE", required=True, help=f"the start state: {FORM}")
    parser.add_argument("--version", metavar="V", help="only workers of this version take the run")
    parser.add_argument(
        "--priority", metavar="N", type=int, default=0, help="from 100 to -100; workers take higher ones first (0)"
    )
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the result as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    start = given(arguments.start, "the start")
    if address(arguments) == "memory:":
        raise InvalidArgument('a "memory:" store ends with its process, so no worker would see the run')
    with open_store(arguments) as hf:
        options = {"version": arguments.version, "priority": arguments.priority}
        hf.submit(arguments.handler, arguments.thread, start=start, **options)
        row = thread_named(hf.context.store, arguments.thread)
        submitted = None if row is None else hf.context.store.run(row.position.thread)
    status, priority = (None, 0) if submitted is None else (submitted.status, submitted.priority)
    if arguments.json:
        put_json({"thread": arguments.thread, "handler": arguments.handler, "status": status, "priority": priority})
    else:
        with_priority = f" with priority {priority}" if priority else ""
        put(f"{quoted(arguments.thread)} is {status} for handler {quoted(arguments.handler)}{with_priority}")
    return Exit.OK
