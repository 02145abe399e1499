"""Copy a store to TARGET as one consistent snapshot, then verify the copy. Writers can continue meanwhile.

TARGET is of the same kind as the store: a path, or dir:path. It must not exist. All namespaces are copied. Encrypted
data stays encrypted. For PostgreSQL, use pg_dump instead.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from holdfast.cli.bar import Show, bar
from holdfast.cli.exits import Exit
from holdfast.cli.findings import counted, data, lines, put, put_json
from holdfast.cli.store import add_store, open_existing


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("target", metavar="TARGET", help="where to write the copy: a path, or dir:path")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the result as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf, bar("copying") as show:
        made = hf.backup(arguments.target, progress=None if show is None else _telling(show))
    report = made.report
    if arguments.json:
        found = {"target": made.target, "bytes": made.bytes, "ok": report.ok, "threads": report.threads}
        put_json({**found, "checkpoints": report.checkpoints, "problems": data(report.problems)})
    else:
        for line in lines(report.problems):
            put(line)
        sound = "verified" if report.ok else f"{counted(len(report.problems), 'problem')}, copied from the store"
        put(f"{made.target}: {made.bytes} bytes, {counted(report.threads, 'thread')}, {sound}")
    return Exit.OK if report.ok else Exit.ERROR


def _telling(show: Show) -> Callable[[int, int], None]:
    def tell(done: int, of: int) -> None:
        show("copying" if done < of else "checking the copy", done, of)

    return tell
