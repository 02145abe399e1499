"""Halt a run: at once if nobody holds it, else at its next call. Its progress is kept, and it can be resumed.

The runs that it began as its children are cancelled with it. Ends with 4 if it is completed.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.store import add_store, open_existing
from holdfast.looking.nearest import existing
from holdfast.text import shown


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("thread", metavar="THREAD", help="whose run is to end")
    parser.add_argument("--reason", metavar="TEXT", default="cancelled on the command line", help="kept with the run")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write what was done as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf:
        number = existing(hf, arguments.thread).position.thread
        hf.cancel(arguments.thread, arguments.reason)
        after = hf._session.store.run(number)
    is_halted = after is not None and after.status == "halted"
    if arguments.json:
        status = None if after is None else after.status
        put_json({"thread": arguments.thread, "halted": is_halted, "status": status, "reason": arguments.reason})
    else:
        put(f"{shown(arguments.thread)} {'is halted' if is_halted else 'will be halted at its next call'}")
    return Exit.OK
