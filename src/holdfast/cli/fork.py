"""Begin a new thread, NAME, at a checkpoint of another: THREAD means its head, THREAD@REF any of its checkpoints.

Nothing is copied, and the other thread stays as it is. With --state the fork begins at an edited state instead; it has
the checkpoint as its parent all the same. Runs on a fork ask before they do what cannot be undone.
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
from holdfast.text import shown


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("reference", metavar="THREAD[@REF]", help="where it begins: thread, thread@-2, thread@label, …")
    parser.add_argument("name", metavar="NAME", help="the new thread")
    parser.add_argument("--state", metavar="FILE", help="begin at this state: a file of JSON, - for stdin")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write what was made as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf:
        found = find(hf, arguments.reference)
        state = None if arguments.state is None else in_file(arguments.state, "the state")
        if state is None and arguments.state is not None:
            raise InvalidArgument("the state is null, and a fork cannot begin at that; nothing was forked")
        forked = hf.thread(found.thread).fork(arguments.name, at=found.checkpoint, state=state)
        first = forked.head()
    if first is None:
        raise HoldfastError(f"thread {shown(arguments.name)} was forked, and somebody has just dropped it")
    if arguments.json:
        put_json({**checkpoint_data(first), "from": checkpoint_data(found.checkpoint)})
    else:
        edited = "" if arguments.state is None else ", with another state"
        put(f"{shown(first.thread)} begins at {described(found.checkpoint)} of {shown(found.thread)}{edited}")
    return Exit.OK
