"""Queue a run for any worker that has the handler. Again with the same start it changes nothing.

The store is made if it is not there. `holdfast worker APP` runs what was submitted.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.store import add_store, address, open_store
from holdfast.cli.values import FORM, given
from holdfast.errors import InvalidArgument
from holdfast.text import shown


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("handler", metavar="HANDLER", help="the name that workers have it under")
    parser.add_argument("thread", metavar="THREAD", help="the thread that the run is on, a new one")
    parser.add_argument("--start", metavar="STATE", required=True, help=f"the state it begins with: {FORM}")
    parser.add_argument("--version", metavar="V", help="only workers of this version take it")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write what was done as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    start = given(arguments.start, "the start")
    if address(arguments) == "memory:":
        raise InvalidArgument('a store "memory:" ends with its process, so no worker would see what is submitted')
    with open_store(arguments) as hf:
        hf.submit(arguments.handler, arguments.thread, start=start, version=arguments.version)
        row = hf._session.store.thread(arguments.thread)
        submitted = None if row is None else hf._session.store.run(row.position.thread)
    status = None if submitted is None else submitted.status
    if arguments.json:
        put_json({"thread": arguments.thread, "handler": arguments.handler, "status": status})
    else:
        put(f"{shown(arguments.thread)} is {status}, for {shown(arguments.handler)}")
    return Exit.OK
