"""Give a checkpoint a label. THREAD@NAME then finds the checkpoint, and pruning keeps it.

Checkpoints are immutable, so the label goes to a new checkpoint with the same state; no state is stored twice. If the
checkpoint is the head, the new one becomes the head; otherwise the head does not change.

On a thread with a run, only the head can be labelled, and only when the run is completed: a run reads its position from
its checkpoints. Other checkpoints are refused with exit code 4; fork the thread there, and label the fork.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.naming import checkpoint_data, described
from holdfast.cli.store import add_store, open_existing
from holdfast.looking.references import find
from holdfast.text import quoted
from holdfast.threads.branches import named


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("reference", metavar="THREAD[@REF]", help="the checkpoint: thread, thread@-2, thread@12, …")
    parser.add_argument("name", metavar="NAME", help="the label")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the new checkpoint as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    return put_name(arguments, is_label=True)


def put_name(arguments: Namespace, *, is_label: bool) -> int:
    """Add a label or a tag."""
    with open_existing(arguments) as hf:
        found = find(hf, arguments.reference)
        label, tags = (arguments.name, ()) if is_label else (None, (arguments.name,))
        made = named(hf.context, found.thread, found.checkpoint, label=label, tags=tags)
    if arguments.json:
        put_json({**checkpoint_data(made), "of": found.checkpoint.id})
    else:
        what = f"the {'label' if is_label else 'tag'} {quoted(arguments.name)}"
        put(f"{described(found.checkpoint)} of {quoted(found.thread)} has {what}, in the new checkpoint {made.id}")
    return Exit.OK
