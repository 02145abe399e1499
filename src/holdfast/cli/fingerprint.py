"""Write a fingerprint of every thread of a namespace to stdout. Keep it outside the store.

`holdfast verify --fingerprint FILE` compares the store with it, and so detects a store that was replaced by an older
copy. The fingerprint takes about 100 bytes per thread and contains the threads' names. For an encrypted store it is
signed.
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
    parser.add_argument("--json", action="store_true", help="write the fingerprint as a field of a JSON object")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf, bar("reading"):
        text = hf.fingerprint()
    if arguments.json:
        put_json({"fingerprint": text})
    else:
        write(text)
    return Exit.OK
