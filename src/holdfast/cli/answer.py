"""Answer a question that a run waits for, or will ask: `holdfast waiting` lists what is asked.

The first answer holds. The same again changes nothing; another ends with 4. Calls in doubt are settled, not answered.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.values import FORM, given
from holdfast.looking.nearest import existing
from holdfast.text import shown


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("thread", metavar="THREAD", help="whose run asks")
    parser.add_argument("name", metavar="NAME", help="what run.wait calls the question")
    parser.add_argument("value", metavar="VALUE", help=f"the answer: {FORM}")
    parser.add_argument("--by", metavar="WHO", help="who answers; it is kept with the answer")
    parser.add_argument("--text", action="store_true", help="VALUE is a text, as it stands")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write what was done as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    value = arguments.value if arguments.text else given(arguments.value, "the answer")
    with open_existing(arguments) as hf:
        existing(hf, arguments.thread)
        hf.answer(arguments.thread, arguments.name, value, by=arguments.by)
    if arguments.json:
        put_json({"thread": arguments.thread, "name": arguments.name, "by": arguments.by})
    else:
        put(f"{shown(arguments.name)} of {shown(arguments.thread)} is answered")
    return Exit.OK
