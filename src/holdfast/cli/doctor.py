"""Check that a store can be used: connection, reads, writes, database settings, clock, disk space and versions.

Exits with 1 if a check fails. It does not check the stored data; `holdfast verify` does.
"""

from __future__ import annotations

import textwrap
from argparse import ArgumentParser, Namespace

from holdfast.cli.exits import Exit
from holdfast.cli.findings import put, put_json
from holdfast.cli.paint import columns, painted
from holdfast.cli.store import add_store, existing, open_existing, shown
from holdfast.errors import HoldfastError, NotFound
from holdfast.looking.checkup import Check, checkup
from holdfast.looking.data import data_of
from holdfast.looking.printable import line

_WIDEST = 120


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the checks as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    url = shown(existing(arguments))
    checks = [Check(name="store", ok=True, what=f"{url}, namespace {arguments.namespace}")]
    try:
        with open_existing(arguments) as hf:
            checks += checkup(hf)
    except NotFound:
        raise
    except HoldfastError as error:
        checks.append(Check(name="open", ok=False, what=str(error)))
    ok = all(check.ok for check in checks)
    if arguments.json:
        put_json({"ok": ok, "checks": [data_of(check) for check in checks]})
    else:
        for check in checks:
            _show(check)
    return Exit.OK if ok else Exit.ERROR


def _show(check: Check) -> None:
    mark = painted("ok ", "green") if check.ok else painted("BAD", "red")
    first, *more = textwrap.wrap(line(check.what), max(min(columns(), _WIDEST) - 16, 20)) or [""]
    put(f"{mark} {check.name:<11} {first}")
    for each in more:
        put(f"{'':16}{each}")
