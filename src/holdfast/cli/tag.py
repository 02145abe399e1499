"""Add a tag to a checkpoint, beside those that it has.

Checkpoints do not change: as with `holdfast label`, a new one with the same state has the tag, and of a thread with a
run only the head of a completed one can be tagged.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.label import put_name
from holdfast.cli.store import add_store


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("reference", metavar="THREAD[@REF]", help="which one: thread, thread@-2, thread@12, …")
    parser.add_argument("name", metavar="NAME", help="the tag")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the new checkpoint as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    return put_name(arguments, is_label=False)
