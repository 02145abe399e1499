"""Add a tag to the tags of a checkpoint.

Checkpoints are immutable, so the tag goes to a new checkpoint with the same state. As with `holdfast label`, on a
thread with a run only the head can be tagged, and only when the run is completed.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.label import put_name
from holdfast.cli.store import add_store


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("reference", metavar="THREAD[@REF]", help="the checkpoint: thread, thread@-2, thread@12, …")
    parser.add_argument("name", metavar="NAME", help="the tag")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the new checkpoint as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    return put_name(arguments, is_label=False)
