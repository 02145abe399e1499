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


VERBS = {
    "worker": Verb("run what was submitted, and what others left unfinished", _worker),
    "drill": Verb("kill an agent at every point of its run, and see whether it comes to the same end", _drill),
}
