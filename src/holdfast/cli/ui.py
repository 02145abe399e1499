"""Browse a store in a web browser: threads, timelines, states, what a resume would do, and the store itself.

Serves the web UI on 127.0.0.1 until Ctrl-C, and writes its address, which contains a secret token. The web UI is
read-only; --allow-write lets it fork, rewind, answer, settle, cancel and prune. --redact names a function that takes
and returns a string; it is applied to every string but names before a page is sent. Needs the extra holdfast[ui].
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from holdfast.cli.application import load_redaction
from holdfast.cli.exits import Exit
from holdfast.cli.findings import put
from holdfast.cli.store import add_store, open_existing, shown
from holdfast.cli.store import address as store_address
from holdfast.cli.talk import say
from holdfast.errors import InvalidArgument, NotInstalled

_PORTS = 65_535


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    add_store(parser)
    parser.add_argument("--port", type=int, default=0, metavar="N", help="the port (default: any free port)")
    parser.add_argument("--allow-write", action="store_true", help="let the web UI change the store")
    parser.add_argument(
        "--redact", metavar="APP:FN", help="a function (module:attribute) that is applied to every string but names"
    )
    parser.add_argument("--json", action="store_true", help="write the address as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    if not 0 <= arguments.port <= _PORTS:
        raise InvalidArgument(f"--port must be a number from 0 to {_PORTS}")
    redact = None if arguments.redact is None else load_redaction(arguments.redact)
    try:
        from holdfast.ui.serving import serve  # noqa: PLC0415 - needs an extra, and is slow to import
    except ImportError as error:
        raise NotInstalled("the web UI needs starlette and uvicorn: pip install 'holdfast[ui]'") from error

    def ready(url: str) -> None:
        put(json.dumps({"url": url, "writes": arguments.allow_write}) if arguments.json else url)
        say("Anyone with this address can read the store. Press Ctrl-C to stop.")

    with open_existing(arguments) as hf:
        title = shown(store_address(arguments))
        serve(hf, port=arguments.port, title=title, allow_write=arguments.allow_write, redact=redact, ready=ready)
    return Exit.OK
