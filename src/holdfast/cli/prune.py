"""Delete old checkpoints of threads, and the data that only they used, after showing the plan.

A checkpoint is deleted if it is not among the newest --keep-last and is older than --older-than. The head, labelled
checkpoints, the newest completed checkpoint and the starting points of forks are always kept.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from holdfast.cli.asking import add_yes, may_go_on, refused
from holdfast.cli.bar import Show, bar
from holdfast.cli.durations import seconds
from holdfast.cli.exits import Exit
from holdfast.cli.findings import counted, put, put_json
from holdfast.cli.numbers import count
from holdfast.cli.store import add_store, open_existing
from holdfast.errors import InvalidArgument, NotFound, Protected
from holdfast.handle import Holdfast
from holdfast.looking.nearest import existing
from holdfast.text import quoted
from holdfast.threads.retention import Retention
from holdfast.types import PruneResult


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("threads", metavar="THREAD", nargs="*", help="the threads to prune")
    parser.add_argument("--prefix", metavar="TEXT", help="prune threads whose names start with this")
    parser.add_argument("--all", action="store_true", help="prune all threads of the namespace")
    parser.add_argument("--keep-last", metavar="N", type=count, help="keep the newest N checkpoints of each thread")
    parser.add_argument(
        "--older-than", metavar="AGE", type=seconds, help="delete only checkpoints older than this: 12h, 30d, …"
    )
    add_yes(parser)
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the plan and the result as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    if [bool(arguments.threads), arguments.prefix is not None, arguments.all].count(True) != 1:
        raise InvalidArgument("choose threads in one way: name them, or pass --prefix or --all")
    if arguments.keep_last is None and arguments.older_than is None:
        raise InvalidArgument("choose what to delete: pass --keep-last N, --older-than AGE, or both")
    retention = Retention(keep_last=arguments.keep_last, older_than=arguments.older_than)
    with open_existing(arguments) as hf:
        with bar("reading") as show:
            plans = _each(hf, _names(hf, arguments), retention, show, dry_run=True)
        planned = [plan for plan in plans if plan.removed]
        is_done = False
        if not arguments.json:
            for plan in planned:
                put(f"{quoted(plan.thread)}: {len(plan.removed)} of {counted(_of(plan), 'checkpoint')} to delete")
        if planned and may_go_on(arguments):
            with bar("pruning") as show:
                planned = _each(hf, [plan.thread for plan in planned], retention, show, dry_run=False)
            is_done = True
    if arguments.json:
        put_json({"done": is_done or not planned, "threads": [_data(plan) for plan in planned]})
    elif not planned:
        put("nothing to prune")
    elif is_done:
        removed = sum(len(plan.removed) for plan in planned)
        put(f"{counted(removed, 'checkpoint')} deleted in {counted(len(planned), 'thread')}")
    return Exit.OK if is_done or not planned else refused(arguments)


def _names(hf: Holdfast, arguments: Namespace) -> list[str]:
    if arguments.threads:
        return [existing(hf, name).name for name in arguments.threads]
    return [info.name for info in hf.threads(prefix=arguments.prefix)]


def _each(
    hf: Holdfast, names: list[str], retention: Retention, show: Show | None, *, dry_run: bool
) -> list[PruneResult]:
    found: list[PruneResult] = []
    for done, name in enumerate(names):
        if show is not None:
            show("reading" if dry_run else "pruning", done, len(names))
        try:
            found.append(hf.thread(name).prune(retention, dry_run=dry_run))
        except (NotFound, Protected):
            continue  # dropped, or rewound to a checkpoint of the plan, in the meantime
    return found


def _of(plan: PruneResult) -> int:
    return plan.kept + len(plan.removed)


def _data(plan: PruneResult) -> dict[str, Any]:
    gone = [{"id": each.id, "seq": each.seq, "step": each.step} for each in plan.removed]
    return {"thread": plan.thread, "kept": plan.kept, "removed": gone}
