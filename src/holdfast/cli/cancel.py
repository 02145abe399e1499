"""Halt a run: at once if no process holds it, otherwise at its next call. Its progress is kept; it can be resumed.

Its child runs are cancelled too. Exits with 4 if the run is completed.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.store import add_store, open_existing
from holdfast.looking.nearest import existing
from holdfast.text import quoted


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("thread", metavar="THREAD", help="the thread of the run")
    parser.add_argument(
        "--reason", metavar="TEXT", default="cancelled on the command line", help="the reason, stored with the run"
    )
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the result as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf:
        number = existing(hf, arguments.thread).position.thread
        hf.cancel(arguments.thread, arguments.reason)
        after = hf.context.store.run(number)
    is_halted = after is not None and after.status == "halted"
    if arguments.json:
        status = None if after is None else after.status
        put_json({"thread": arguments.thread, "halted": is_halted, "status": status, "reason": arguments.reason})
    else:
        put(f"{quoted(arguments.thread)} {'is halted' if is_halted else 'will be halted at its next call'}")
    return Exit.OK
