"""Answer a question of a run. `holdfast waiting` lists open questions.

The first answer counts. Repeating it changes nothing; a different answer is refused with exit code 4. So is the answer
to a question that the run has not asked, unless --early is given. Calls in doubt are not answered but settled: see
`holdfast settle`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.values import FORM, given
from holdfast.looking.nearest import existing
from holdfast.text import quoted


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("thread", metavar="THREAD", help="the thread of the run")
    parser.add_argument("name", metavar="NAME", help="the name of the question, as passed to run.wait")
    parser.add_argument("value", metavar="VALUE", help=f"the answer: {FORM}")
    parser.add_argument("--by", metavar="WHO", help="the author of the answer, stored with it")
    parser.add_argument("--text", action="store_true", help="VALUE is a plain string, not JSON")
    parser.add_argument(
        "--early", action="store_true", help="answer the first question of that name before it is asked"
    )
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the result as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    value = arguments.value if arguments.text else given(arguments.value, "the answer")
    with open_existing(arguments) as hf:
        existing(hf, arguments.thread)
        hf.answer(arguments.thread, arguments.name, value, by=arguments.by, early=arguments.early)
    if arguments.json:
        put_json({"thread": arguments.thread, "name": arguments.name, "by": arguments.by})
    else:
        put(f"answered {quoted(arguments.name)} of {quoted(arguments.thread)}")
    return Exit.OK
