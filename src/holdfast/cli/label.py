"""Give a checkpoint a label, under which THREAD@NAME finds it, and which keeps it from being pruned.

Checkpoints do not change: a new one, with the same state and no bytes of it stored again, has the label. If the
checkpoint is the head, the new one is the head then; else the head stays. On a thread with a run only the head can be
labelled, and only when the run is completed: a run is told by its checkpoints where it stands. `holdfast fork` at any
other, and label the fork. All else ends with 4.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.naming import checkpoint_data, described
from holdfast.cli.store import add_store, open_existing
from holdfast.looking.references import find
from holdfast.text import shown
from holdfast.threads.branches import named


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("reference", metavar="THREAD[@REF]", help="which one: thread, thread@-2, thread@12, …")
    parser.add_argument("name", metavar="NAME", help="the label")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the new checkpoint as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    return put_name(arguments, is_label=True)


def put_name(arguments: Namespace, *, is_label: bool) -> int:
    """What `label` and `tag` do."""
    with open_existing(arguments) as hf:
        found = find(hf, arguments.reference)
        label, tags = (arguments.name, ()) if is_label else (None, (arguments.name,))
        made = named(hf._session, found.thread, found.checkpoint, label=label, tags=tags)
    if arguments.json:
        put_json({**checkpoint_data(made), "of": found.checkpoint.id})
    else:
        what = f"the {'label' if is_label else 'tag'} {shown(arguments.name)}"
        put(f"{described(found.checkpoint)} of {shown(found.thread)} has {what}, as {made.id}")
    return Exit.OK
