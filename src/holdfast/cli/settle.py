"""Record the outcome of a call in doubt, so that its run can continue. Find out first whether the call happened.

EFFECT is the number of the call, as `holdfast effects THREAD` and `holdfast waiting` show it. After --happened the run
uses the given result. After --not-done the call is made; while the call may still act, that needs --force. After
--give-up the model sees that the outcome is unknown.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.values import FORM, given
from holdfast.looking.nearest import existing
from holdfast.runs.tools import GiveUp, Happened, NotDone, Outcome
from holdfast.text import quoted


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("thread", metavar="THREAD", help="the thread of the run")
    parser.add_argument("effect", metavar="EFFECT", type=int, help="the number of the call in the journal")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--happened", metavar="RESULT", help=f"the call happened and returned this: {FORM}")
    what.add_argument("--not-done", action="store_true", help="the call did not happen")
    what.add_argument("--give-up", action="store_true", help="the outcome cannot be found out")
    parser.add_argument("--force", action="store_true", help="with --not-done: also if the call may still act")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the result as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    outcome: Outcome
    if arguments.happened is not None:
        outcome, word = Happened(given(arguments.happened, "the result")), "done"
    elif arguments.not_done:
        outcome, word = NotDone(), "not_done"
    else:
        outcome, word = GiveUp(), "given_up"
    with open_existing(arguments) as hf:
        existing(hf, arguments.thread)
        hf.settle(arguments.thread, arguments.effect, outcome, force=arguments.force)
    if arguments.json:
        put_json({"thread": arguments.thread, "effect": arguments.effect, "status": word})
    else:
        put(f"effect {arguments.effect} of {quoted(arguments.thread)} is settled: {word.replace('_', ' ')}")
    return Exit.OK
