"""List the threads of a store with status, steps, tokens, cost, size and age.

A run is "interrupted" if its process died, and "in doubt" if it waits for the outcome of a call to be settled. A thread
without a run is "saved", or "saved as" the status that its last save gave. The list is sorted by name; other orders of
--sort read all threads first. --after continues a list that was cut by --limit.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import get_args

from holdfast.cli.amounts import age, grouped, money, sized
from holdfast.cli.bar import bar
from holdfast.cli.durations import seconds
from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.numbers import count
from holdfast.cli.standing import colour_of, stands
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.table import Column, table
from holdfast.cli.talk import say
from holdfast.looking.commands import option
from holdfast.looking.data import data_of
from holdfast.looking.printable import line
from holdfast.looking.threads import Filter, Order, Standing, ThreadLine, threads

_COLUMNS = (
    Column("THREAD", shrinks=True),
    Column("STATUS", shrinks=True, colour=colour_of),
    Column("STEP", is_right=True),
    Column("SAVES", is_right=True),
    Column("TOKENS", is_right=True),
    Column("COST", is_right=True),
    Column("SIZE", is_right=True),
    Column("AGE", is_right=True),
    Column("AGENT", shrinks=True),
)


_STANDINGS = ", ".join(get_args(Standing)).replace("in doubt", "in-doubt")


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="only names that start with this")
    parser.add_argument("--status", metavar="STATUS", type=_standing, choices=get_args(Standing), help=_STANDINGS)
    parser.add_argument("--contains", metavar="TEXT", default="", help="only names that contain this")
    parser.add_argument("--agent", metavar="NAME", help="only threads of this agent")
    parser.add_argument(
        "--older", metavar="AGE", type=seconds, help="not changed for at least this: 90s, 45m, 12h, 30d, 2w"
    )
    parser.add_argument("--newer", metavar="AGE", type=seconds, help="changed within this")
    parser.add_argument(
        "--sort",
        metavar="ORDER",
        choices=get_args(Order),
        default="name",
        help=f"{', '.join(get_args(Order))} (default: name)",
    )
    parser.add_argument(
        "--limit", metavar="N", type=count, default=100, help="list at most N threads (default: 100; 0: all)"
    )
    parser.add_argument(
        "--after",
        metavar="TEXT",
        help="continue after this name or, with --sort, after the text the last list ended with",
    )
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the list as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    which = Filter(
        prefix=arguments.prefix,
        contains=arguments.contains,
        standing=arguments.status,
        older_than=arguments.older,
        newer_than=arguments.newer,
        agent=arguments.agent,
    )
    with open_existing(arguments) as hf, bar("reading"):
        page = threads(hf, which, order=arguments.sort, after=arguments.after, limit=arguments.limit or 1 << 40)
    if arguments.json:
        put_json(data_of(page))
    elif page.threads:
        for each in table(_COLUMNS, [_row(found) for found in page.threads]):
            put(each)
    if not page.threads:
        say("no threads" if which == Filter() and arguments.after is None else "no matching threads")
    if page.after is not None and not arguments.json:
        say(f"more threads follow: pass {option('--after', page.after)}, or --limit 0 for all")
    if page.lost is not None:
        say(f"some threads cannot be listed: {line(page.lost)}; run `holdfast verify`")
        return Exit.ERROR
    return Exit.OK


def _standing(text: str) -> str:
    return text.replace("-", " ")


def _row(found: ThreadLine) -> list[str]:
    doubt = f" ({found.in_doubt} in doubt)" if found.in_doubt and found.standing != "in doubt" else ""
    asked = f" ({line(found.waits_for)})" if found.waits_for is not None and not doubt else ""
    if found.standing == "queued" and found.priority:
        asked = f" (priority {found.priority})"
    return [
        line(found.name),
        f"{stands(found.standing, has_run=found.has_run)}{doubt}{asked}",
        str(found.step),
        str(found.count),
        grouped(found.tokens),
        money(found.cost, found.currency),
        sized(found.size),
        age(found.updated_at),
        line(found.agent or ""),
    ]
