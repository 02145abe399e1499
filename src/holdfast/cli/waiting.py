"""List what runs wait for, longest first: questions, which `holdfast answer` answers, and calls in doubt, which
`holdfast settle` decides.

Ends with 5 if there are calls in doubt among them.
"""

from __future__ import annotations

import json
import shlex
from argparse import ArgumentParser, Namespace

from holdfast.cli.amounts import age, stamp
from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.paint import columns, cut, painted
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.talk import say
from holdfast.looking.data import data_of
from holdfast.looking.printable import line
from holdfast.records import Question


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="only questions, or calls, of this name")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write them as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf:
        found = list(hf.waiting(arguments.name))
    if arguments.json:
        put_json({"waiting": [data_of(each) for each in found]})
    else:
        for each in found:
            _show(each)
    if not found:
        say("nothing waits for an answer")
    return Exit.IN_DOUBT if any(each.about == "in doubt" for each in found) else Exit.OK


def _show(question: Question) -> None:
    until = "" if question.until is None else f", until {stamp(question.until)} UTC"
    about = "asks" if question.about == "wait" else painted("in doubt", "yellow")
    put(f"{painted(line(question.thread), 'bold')}  {about} {line(question.name)}  {age(question.since)} ago{until}")
    if question.payload is not None:
        put(f"  {cut(line(json.dumps(data_of(question.payload), ensure_ascii=False)), max(columns() - 2, 20))}")
    thread = shlex.quote(question.thread)
    if question.about == "wait":
        put(f"  holdfast answer {line(thread)} {line(shlex.quote(question.name))} VALUE")
    else:
        put(f"  holdfast settle {line(thread)} {question.effect} --happened RESULT | --not-done | --give-up")
