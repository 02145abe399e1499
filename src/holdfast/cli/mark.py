"""Write where every thread of a namespace stands, to be kept outside of the store: `holdfast verify --mark` compares.

What is written to stdout takes about a hundred bytes per thread, and tells their names. In an encrypted store it is
signed by a key.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli.bar import bar
from holdfast.cli.exits import Exit
from holdfast.cli.findings import put_json
from holdfast.cli.output import write
from holdfast.cli.store import add_store, open_existing


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the text as the field of a JSON object")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf, bar("looking"):
        text = hf.mark()
    if arguments.json:
        put_json({"mark": text})
    else:
        write(text)
    return Exit.OK
