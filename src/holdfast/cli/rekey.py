"""Wrap every data key of an encrypted store by the current key: the first in $HOLDFAST_KEY.

$HOLDFAST_KEY holds `name:key`, and behind commas the older keys that are still needed to read. Open every writer with
the new key first: what an older one creates later needs the older key. What is stored is not written anew. Once this
has ended without an error, the older keys are not needed any more; an error says which were left as they are.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from holdfast.cli.bar import Show, bar
from holdfast.cli.exits import Exit
from holdfast.cli.findings import counted, put, put_json
from holdfast.cli.store import add_store, open_existing


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write what was done as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf, bar("keys") as show:
        changed = hf.rekey(None if show is None else _telling(show))
    if arguments.json:
        put_json({"rewrapped": changed})
    else:
        put(f"{counted(changed, 'key')} wrapped anew" if changed else "every key is wrapped by the current one")
    return Exit.OK


def _telling(show: Show) -> Callable[[int], None]:
    done = 0

    def tell(looked_at: int) -> None:
        nonlocal done
        done += looked_at
        show("keys", done, None)

    return tell
