"""Show the size of a store, its growth, and the size that full copies of the state at each checkpoint would take.

Reads the metadata of every checkpoint, of the namespace or of one thread. It reads no states.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator

from holdfast.cli.amounts import grouped, sized
from holdfast.cli.bar import Show, bar
from holdfast.cli.findings import put, put_json
from holdfast.cli.losses import tell_lost
from holdfast.cli.numbers import count
from holdfast.cli.store import add_store, open_existing
from holdfast.looking.data import data_of
from holdfast.looking.stats import Stats, stats

_BAR = 20  # characters


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("thread", metavar="THREAD", nargs="?", help="only this thread")
    parser.add_argument(
        "--days", metavar="N", type=count, default=14, help="show the growth of the last N days (default: 14)"
    )
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the numbers as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf, bar("threads") as show:
        found = stats(hf, arguments.thread, days=arguments.days, progress=None if show is None else _telling(show))
    if arguments.json:
        put_json(data_of(found))
    else:
        for each in _lines(found):
            put(each)
    return tell_lost(found.lost)


def _telling(show: Show) -> Callable[[int], None]:
    return lambda done: show("threads", done, None)


def _lines(found: Stats) -> Iterator[str]:
    yield f"threads      {grouped(found.threads)}"
    yield f"checkpoints  {grouped(found.checkpoints)}"
    if found.statuses:
        yield "threads by status of their last save (`holdfast threads` shows the status of runs):"
    for status, number in found.statuses.items():
        yield f"  {status:<11}{grouped(number)}"
    yield f"newest       {sized(found.newest)}  (newest state of each thread)"
    yield f"full copies  {sized(found.copies)}  (a full copy of the state per checkpoint)"
    if found.stored is not None:
        yield f"on disk      {sized(found.stored)}  (the whole store, all namespaces)"
    if found.saved is not None:
        yield f"saved        {found.saved:g} times smaller" if found.saved >= 1 else "saved        nothing yet"
    if found.days:
        most = max(day.checkpoints for day in found.days)
        yield "day         checkpoints"
        for day in found.days:
            yield f"{day.day}  {grouped(day.checkpoints):>11}  {'#' * max(1, round(_BAR * day.checkpoints / most))}"
