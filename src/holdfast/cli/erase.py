"""Delete a thread, or every thread that has a checkpoint with given metadata, and remove its data from the files.

Threads of child runs are erased too, forks only with --forks. The plan is shown first: what is erased, what is kept,
and where copies may remain. Exits with 1 if an open reader keeps the data in the files: close the reader, and run the
command again.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from holdfast.cli.asking import add_yes, may_go_on, refused
from holdfast.cli.bar import bar
from holdfast.cli.exits import Exit
from holdfast.cli.findings import counted, put, put_json
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.talk import say
from holdfast.cli.values import given
from holdfast.cli.wording import worded
from holdfast.errors import ErasePending, InvalidArgument
from holdfast.looking.nearest import existing
from holdfast.looking.printable import line
from holdfast.text import quoted
from holdfast.threads import erase
from holdfast.types import EraseResult


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("thread", metavar="THREAD", nargs="?", help="the thread to erase")
    parser.add_argument(
        "--metadata",
        metavar="NAME=JSON",
        action="append",
        help="erase threads that have a checkpoint with this metadata; may be repeated",
    )
    parser.add_argument("--forks", action="store_true", help="also erase their forks")
    add_yes(parser)
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the plan and the result as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    if (arguments.thread is None) == (arguments.metadata is None):
        raise InvalidArgument("name a thread or pass --metadata, not both")
    metadata = None if arguments.metadata is None else dict(map(_entry, arguments.metadata))
    is_pending = is_done = False
    with open_existing(arguments) as hf:
        if arguments.thread is not None and not arguments.yes:
            existing(hf, arguments.thread)  # not with --yes, which may repeat an erase that was interrupted
        with bar("reading"):
            told = erase.plan(hf.context, arguments.thread, metadata, forks=arguments.forks)
        if not arguments.json:
            for name in told.threads:
                put(f"{quoted(name)} would be erased")
            _tell(told)
        if may_go_on(arguments):
            try:
                with bar("erasing"):
                    told = hf.erase(arguments.thread, metadata=metadata, forks=arguments.forks)
                is_done = True
            except ErasePending as pending:
                is_pending, told = True, pending.erased or told
                say(f"holdfast erase: {worded(str(pending))}")
    if arguments.json:
        put_json({"done": is_done, "pending": is_pending, **_data(told)})
    elif is_done:
        _tell(told)
        put(f"{counted(len(told.threads), 'thread')} erased")
    if is_pending:
        return Exit.ERROR
    return Exit.OK if is_done else refused(arguments)


def _tell(told: EraseResult) -> None:
    for name in told.forks_left:
        put(f"kept: {quoted(name)}, a fork; --forks erases it too")
    if told.values_kept:
        put(f"kept: {counted(len(told.values_kept), 'blob')} that other threads use")
    for what in told.beyond:
        put(f"may remain: {line(what)}")


def _data(told: EraseResult) -> dict[str, Any]:
    return {
        "threads": list(told.threads),
        "forks_left": list(told.forks_left),
        "values_kept": list(told.values_kept),
        "beyond": list(told.beyond),
    }


def _entry(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise InvalidArgument(f'{text!r} is not NAME=JSON, like user="ann"')
    return name, given(value, f"metadata {name!r}")
