"""Start a new thread NAME at a checkpoint of another: THREAD means its head, THREAD@REF any of its checkpoints.

Nothing is copied, and the other thread is not changed. With --state the fork starts from an edited state; its parent
is still the checkpoint. Runs on a fork ask before they make irreversible calls.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.naming import checkpoint_data, described
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.values import in_file
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.looking.references import find
from holdfast.text import quoted


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument(
        "reference", metavar="THREAD[@REF]", help="the checkpoint to fork: thread, thread@-2, thread@label, …"
    )
    parser.add_argument("name", metavar="NAME", help="the name of the new thread")
    parser.add_argument("--state", metavar="FILE", help="start from the state in this JSON file; - reads stdin")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the result as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf:
        found = find(hf, arguments.reference)
        state = None if arguments.state is None else in_file(arguments.state, "the state")
        if state is None and arguments.state is not None:
            raise InvalidArgument("the state is null; nothing was forked. Give a state other than null.")
        forked = hf.thread(found.thread).fork(arguments.name, at=found.checkpoint, state=state)
        first = forked.head()
    if first is None:
        raise HoldfastError(f"thread {quoted(arguments.name)} was forked, and then dropped by another process")
    if arguments.json:
        put_json({**checkpoint_data(first), "from": checkpoint_data(found.checkpoint)})
    else:
        edited = "" if arguments.state is None else ", with an edited state"
        put(f"{quoted(first.thread)} forked from {described(found.checkpoint)} of {quoted(found.thread)}{edited}")
    return Exit.OK
