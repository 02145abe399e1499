"""Merge small segments, delete unreferenced data, and return free space to the file system.

Readers and writers can continue meanwhile. A store of an earlier format is upgraded first. Exits with 1 if damaged
segments were found and left unchanged; `holdfast verify` lists the damage.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.bar import bar
from holdfast.cli.exits import Exit
from holdfast.cli.findings import counted, put, put_json
from holdfast.cli.store import add_store, open_existing


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the result as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments, upgrades=True) as hf, bar("merging"):
        done = hf.optimize()
    if arguments.json:
        put_json({"merged": done.merged, "damaged": done.damaged})
    else:
        left = f", {done.damaged} damaged left unchanged" if done.damaged else ""
        put(f"{counted(done.merged, 'segment')} merged{left}")
    return Exit.ERROR if done.damaged else Exit.OK
