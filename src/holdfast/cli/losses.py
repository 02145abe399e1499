"""Report the parts of a damaged store that could not be read."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.cli.exits import Exit
from holdfast.cli.talk import say
from holdfast.looking.printable import line


def tell_lost(lost: Iterable[str], otherwise: Exit = Exit.OK) -> Exit:
    """Report unreadable parts. Return ERROR if there are any, else `otherwise`."""
    told = [line(each) for each in lost]
    for each in told:
        say(f"cannot be read: {each}")
    return Exit.ERROR if told else otherwise
