"""The verbs of the command line: what each is for, and where it is found when it is called."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import NamedTuple, Protocol


class Program(Protocol):
    """What the module of a verb has. Its docstring is the verb's description."""

    def declare(self, parser: ArgumentParser, /) -> None:
        """Add the verb's arguments."""
        ...

    def run(self, arguments: Namespace, /) -> int:
        """Do it; the exit code. Raises HoldfastError for what cannot be done."""
        ...


class Verb(NamedTuple):
    """One verb. It is loaded when it is called: nobody waits for the imports of the others."""

    summary: str
    load: Callable[[], Program]


# ruff: noqa: PLC0415 - a verb is imported when it is called
def _worker() -> Program:
    from holdfast.cli import worker

    return worker


def _drill() -> Program:
    from holdfast.cli import drill

    return drill


def _verify() -> Program:
    from holdfast.cli import verify

    return verify


def _mark() -> Program:
    from holdfast.cli import mark

    return mark


def _backup() -> Program:
    from holdfast.cli import backup

    return backup


def _repair() -> Program:
    from holdfast.cli import repair

    return repair


def _rekey() -> Program:
    from holdfast.cli import rekey

    return rekey


VERBS = {
    "worker": Verb("run what was submitted, and what others left unfinished", _worker),
    "drill": Verb("kill an agent at every point of its run, and see whether it comes to the same end", _drill),
    "verify": Verb("check all that a store holds", _verify),
    "mark": Verb("write where every thread stands, to see later that none went back", _mark),
    "backup": Verb("copy a store while it is used", _backup),
    "repair": Verb("copy what can be read of a damaged store into a new one", _repair),
    "rekey": Verb("wrap the keys of an encrypted store by the current key", _rekey),
}
