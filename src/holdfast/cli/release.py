"""Let an act happen again. Find out first that it has not happened, or that it may happen twice.

ACT is the id of an act, as `holdfast acts` shows it. The name and the reason are recorded with the call that has
claimed the act, or in the thread `holdfast/actions` if the thread of that call was deleted. An act that is under way
cannot be released. While its call may still act, that needs --force.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.store import add_store, open_existing


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("act", metavar="ACT", help="the id of the act")
    parser.add_argument("--by", metavar="NAME", required=True, help="the person that decides")
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why the act may happen again")
    parser.add_argument("--force", action="store_true", help="also if the call of the act may still act")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the result as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf:
        hf.release(arguments.act, by=arguments.by, reason=arguments.reason, force=arguments.force)
    if arguments.json:
        put_json({"act": arguments.act, "status": "released"})
    else:
        put("the act is released; the next call does it again")
    return Exit.OK
