"""Copy the readable part of a damaged store's namespace into a new store TARGET, and report what was lost.

TARGET is an empty store of any kind. Ids, order, labels, metadata, times, runs and journals are kept. A damaged
checkpoint is replaced by a tombstone. The old store is not changed: if it is a file, a copy of it is read. Exits with 1
if something was lost. Stop all writers of the store first.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from holdfast.cli.bar import Show, bar
from holdfast.cli.exits import Exit
from holdfast.cli.findings import counted, data, lines, put, put_json
from holdfast.cli.store import add_store, existing
from holdfast.handle import open as open_handle
from holdfast.maintenance import untouched
from holdfast.types import VerifyProgress


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("target", metavar="TARGET", help="the new store: a path, dir:path, or a URL")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the result as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with (
        untouched(existing(arguments), near=arguments.target) as address,
        open_handle(address, namespace=arguments.namespace) as hf,
        bar("reading") as show,
    ):
        done = hf.repair(arguments.target, progress=None if show is None else _telling(show))
    if arguments.json:
        found = {"ok": done.ok, "threads": done.threads, "checkpoints": done.checkpoints, "entries": done.entries}
        put_json({**found, "redigested": done.redigested, "lost": data(done.lost)})
    else:
        for line in lines(done.lost):
            put(line)
        what = f"{counted(done.threads, 'thread')}, {counted(done.checkpoints, 'checkpoint')}"
        put(f"{what}, {done.entries} journal entr{'y' if done.entries == 1 else 'ies'} copied")
    return Exit.OK if done.ok else Exit.ERROR


def _telling(show: Show) -> Callable[[VerifyProgress], None]:
    def tell(looked: VerifyProgress) -> None:
        show(f"threads ({looked.bytes >> 20} MiB)", looked.done, looked.of)

    return tell
