"""Delete whole threads, with their runs and journals, after showing what would be deleted.

Forks keep the data they share with a dropped thread. A thread whose run is active is refused. Deleted data can remain
in the store's files; `holdfast erase` removes it there too.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.asking import add_yes, may_go_on, refused
from holdfast.cli.bar import Show, bar
from holdfast.cli.exits import Exit
from holdfast.cli.findings import counted, put, put_json
from holdfast.cli.store import add_store, open_existing
from holdfast.errors import LeaseHeld
from holdfast.handle import Holdfast
from holdfast.looking.nearest import existing
from holdfast.text import quoted


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("threads", metavar="THREAD", nargs="+", help="the threads to delete")
    add_yes(parser)
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the plan and the result as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    names = list(dict.fromkeys(arguments.threads))
    with open_existing(arguments) as hf:
        store = hf.context.store
        rows = [existing(hf, name) for name in names]
        effects = [store.last_entry(row.position.thread) for row in rows]
        if not arguments.json:
            for row, entries in zip(rows, effects, strict=True):
                journal = f", {entries} journal entr{'y' if entries == 1 else 'ies'}" if entries else ""
                put(f"{quoted(row.name)}: {counted(row.count, 'checkpoint')}{journal}, {row.summary.status}")
        is_done = may_go_on(arguments)
        if is_done:
            with bar("dropping") as show:
                _drop(hf, names, show)
    if arguments.json:
        gone = [
            {"thread": row.name, "checkpoints": row.count, "entries": entries, "status": row.summary.status}
            for row, entries in zip(rows, effects, strict=True)
        ]
        put_json({"done": is_done, "threads": gone})
    elif is_done:
        put(f"{counted(len(names), 'thread')} dropped")
    return Exit.OK if is_done else refused(arguments)


def _drop(hf: Holdfast, names: list[str], show: Show | None) -> None:
    for done, name in enumerate(names):
        if show is not None:
            show("dropping", done, len(names))
        try:
            hf.thread(name).drop()
        except LeaseHeld as error:
            raise LeaseHeld(f"{done} of {len(names)} threads were dropped; {quoted(name)} was not: {error}") from error
