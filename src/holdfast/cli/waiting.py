"""List what runs wait for, oldest first: open questions (see `holdfast answer`) and calls in doubt (see `holdfast
settle`).

Exits with 5 if there are calls in doubt.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.amounts import age, stamp
from holdfast.cli.bar import bar
from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.losses import tell_lost
from holdfast.cli.paint import columns, cut, painted
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.talk import say
from holdfast.cli.talks import in_a_line
from holdfast.looking.attention import waiting
from holdfast.looking.commands import Commands
from holdfast.looking.data import data_of
from holdfast.looking.printable import line
from holdfast.types import PendingQuestion


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="list only questions and calls with this name")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the list as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf, bar("reading"):
        found, lost = waiting(hf, arguments.name)
        commands = Commands(hf)
    if arguments.json:
        put_json({"waiting": [{**data_of(each), "commands": _commands(commands, each)} for each in found]})
    else:
        for each in found:
            _show(each, _commands(commands, each))
    if not found and not lost:
        say("no open questions or calls in doubt")
    is_doubtful = any(each.about == "in doubt" for each in found)
    return tell_lost(lost, Exit.IN_DOUBT if is_doubtful else Exit.OK)


def _commands(commands: Commands, question: PendingQuestion) -> list[str]:
    if question.about == "wait":
        return [commands.answer(question.thread, question.name)]
    return list(commands.settle(question.thread, question.effect))


def _show(question: PendingQuestion, commands: list[str]) -> None:
    until = "" if question.until is None else f", until {stamp(question.until)} UTC"
    about = "asks" if question.about == "wait" else painted("in doubt", "yellow")
    put(f"{painted(line(question.thread), 'bold')}  {about} {line(question.name)}  {age(question.since)} ago{until}")
    if question.payload is not None:
        put(f"  {cut(in_a_line(question.payload), max(columns() - 2, 20))}")
    for each in commands:
        put(f"  {line(each)}")
