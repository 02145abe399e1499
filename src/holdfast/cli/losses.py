"""What could not be read of a damaged store, said beside what could."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.cli.exits import Exit
from holdfast.cli.talk import say
from holdfast.looking.printable import line


def tell_lost(lost: Iterable[str], otherwise: Exit = Exit.OK) -> Exit:
    """Say what is lost; how a verb ends: with an error if something is."""
    told = [line(each) for each in lost]
    for each in told:
        say(f"cannot be read: {each}")
    return Exit.ERROR if told else otherwise
