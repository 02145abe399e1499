"""Rewrap every data key of an encrypted store with the current key, the first in $HOLDFAST_KEY.

$HOLDFAST_KEY holds `name:key`, followed by the older keys that are still needed to read, separated by commas. First
restart every writer with the new key: data that a writer with the old key creates later needs the old key. Stored data
is not rewritten. After this command succeeds, the older keys are no longer needed. An error lists the keys that were
not changed.
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
    parser.add_argument("--json", action="store_true", help="write the result as JSON")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    with open_existing(arguments) as hf, bar("keys") as show:
        changed = hf.rekey(None if show is None else _telling(show))
    if arguments.json:
        put_json({"rewrapped": changed})
    else:
        put(f"{counted(changed, 'key')} rewrapped" if changed else "all keys already use the current key")
    return Exit.OK


def _telling(show: Show) -> Callable[[int], None]:
    done = 0

    def tell(looked_at: int) -> None:
        nonlocal done
        done += looked_at
        show("keys", done, None)

    return tell
