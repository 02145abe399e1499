"""List the runs whose process died, and what a resume would do with each.

Exits with 5 if some of their calls are in doubt. --tools names the agent's tools, which declare how a call in doubt is
settled. Without it, the plan assumes that a person decides about irreversible calls.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.amounts import age
from holdfast.cli.application import load_tools
from holdfast.cli.bar import bar
from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.losses import tell_lost
from holdfast.cli.paint import painted
from holdfast.cli.store import add_store, existing
from holdfast.cli.talk import say
from holdfast.handle import open as open_handle
from holdfast.looking.attention import interrupted
from holdfast.looking.data import data_of
from holdfast.looking.printable import line
from holdfast.looking.recovery import Recovery

_MARKS = {"answered": "=", "again": ">", "decide": "?", "wait": "?", "child": ">"}


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("--tools", metavar="APP", help="the agent's tools, as module:attribute: a list of functions")
    parser.add_argument("--calls", action="store_true", help="show each call, and what a resume does with it")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the runs as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    tools = [] if arguments.tools is None else load_tools(arguments.tools)
    with open_handle(existing(arguments), namespace=arguments.namespace, tools=tools) as hf, bar("reading"):
        plans, lost = interrupted(hf)
    if arguments.json:
        put_json(
            {
                "interrupted": [
                    {**data_of(plan), "in_doubt": [effect.number for effect in each.in_doubt]} for each, plan in plans
                ]
            }
        )
    else:
        for _, plan in plans:
            _show(plan, with_calls=arguments.calls)
    if not plans and not lost:
        say("no interrupted runs")
    return tell_lost(lost, Exit.IN_DOUBT if any(each.in_doubt for each, _ in plans) else Exit.OK)


def _show(plan: Recovery, *, with_calls: bool) -> None:
    attempts = f", attempt {plan.attempt}" if plan.attempt > 1 else ""
    put(f"{painted(line(plan.thread), 'bold')}  step {plan.step}, last active {age(plan.since)} ago{attempts}")
    put(f"  {line(plan.summary)}")
    for each in plan.calls:
        if with_calls or each.does == "decide":
            put(f"  {_MARKS[each.does]} {each.call.number} {line(each.call.name)}: {each.why}")
        for command in each.commands:
            put(f"      {line(command)}")
    put(f"  {line(plan.command)}")
