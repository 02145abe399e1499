"""The table of commands: one summary and one lazily imported module for each."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Final, NamedTuple, Protocol, cast


class Program(Protocol):
    """The interface of a command's module. Its docstring is the command's description."""

    def declare(self, parser: ArgumentParser, /) -> None:
        """Add the command's arguments to the parser."""
        ...

    def run(self, arguments: Namespace, /) -> int:
        """Run the command and return its exit code. Raises HoldfastError if it fails."""
        ...


class Verb(NamedTuple):
    """A command. Its module is imported when the command is called."""

    summary: str
    module: Callable[[], ModuleType]

    def load(self) -> Program:
        return cast("Program", self.module())


VERBS: Final = {
    "worker": Verb("run queued runs, and resume interrupted ones", lambda: import_module("holdfast.cli.worker")),
    "drill": Verb(
        "kill an agent at every point of its run, and check that it reaches the same result",
        lambda: import_module("holdfast.cli.drill"),
    ),
    "verify": Verb("check the integrity of a store", lambda: import_module("holdfast.cli.verify")),
    "fingerprint": Verb(
        "write a fingerprint of all threads, to detect a rollback later",
        lambda: import_module("holdfast.cli.fingerprint"),
    ),
    "backup": Verb("copy a store while it is in use", lambda: import_module("holdfast.cli.backup")),
    "repair": Verb(
        "copy the readable part of a damaged store into a new one", lambda: import_module("holdfast.cli.repair")
    ),
    "import": Verb("import threads from another system", lambda: import_module("holdfast.cli.import_")),
    "rekey": Verb(
        "rewrap the data keys of an encrypted store with the current key", lambda: import_module("holdfast.cli.rekey")
    ),
    "threads": Verb(
        "list threads with status, steps, tokens, cost, size and age",
        lambda: import_module("holdfast.cli.threads"),
    ),
    "log": Verb(
        "show the checkpoints of a thread, with branches, crashes and resumes",
        lambda: import_module("holdfast.cli.log"),
    ),
    "show": Verb(
        "show a checkpoint: its messages as a chat, or its state as a tree",
        lambda: import_module("holdfast.cli.show"),
    ),
    "diff": Verb("show what changed between two checkpoints", lambda: import_module("holdfast.cli.diff")),
    "effects": Verb(
        "show the journal of a thread: every call and its outcome", lambda: import_module("holdfast.cli.effects")
    ),
    "interrupted": Verb(
        "list runs whose process died, and what a resume would do", lambda: import_module("holdfast.cli.interrupted")
    ),
    "waiting": Verb("list open questions, and calls in doubt", lambda: import_module("holdfast.cli.waiting")),
    "acts": Verb(
        "list acts that happen once, and which call has done them", lambda: import_module("holdfast.cli.acts")
    ),
    "stuck": Verb("list runs that make no progress, and why", lambda: import_module("holdfast.cli.stuck")),
    "stats": Verb(
        "show the size and growth of a store, and what deduplication saved",
        lambda: import_module("holdfast.cli.stats"),
    ),
    "watch": Verb("follow a thread live", lambda: import_module("holdfast.cli.watch")),
    "doctor": Verb(
        "check that a store can be read and written; check settings, clock, disk and versions",
        lambda: import_module("holdfast.cli.doctor"),
    ),
    "ui": Verb("browse a store in a web browser", lambda: import_module("holdfast.cli.ui")),
    "fork": Verb("start a new thread at a checkpoint of another", lambda: import_module("holdfast.cli.fork")),
    "rewind": Verb("make an earlier checkpoint the head of its thread", lambda: import_module("holdfast.cli.rewind")),
    "label": Verb("give a checkpoint a label", lambda: import_module("holdfast.cli.label")),
    "tag": Verb("add a tag to a checkpoint", lambda: import_module("holdfast.cli.tag")),
    "answer": Verb("answer a question that a run waits for", lambda: import_module("holdfast.cli.answer")),
    "settle": Verb("record the outcome of a call in doubt", lambda: import_module("holdfast.cli.settle")),
    "release": Verb("let an act happen again", lambda: import_module("holdfast.cli.release")),
    "cancel": Verb("halt a run", lambda: import_module("holdfast.cli.cancel")),
    "submit": Verb("queue a run for any worker", lambda: import_module("holdfast.cli.submit")),
    "resume": Verb("resume the run of one thread", lambda: import_module("holdfast.cli.resume")),
    "prune": Verb("delete old checkpoints", lambda: import_module("holdfast.cli.prune")),
    "drop": Verb("delete whole threads", lambda: import_module("holdfast.cli.drop")),
    "erase": Verb(
        "delete threads, and remove their data from the store's files", lambda: import_module("holdfast.cli.erase")
    ),
    "optimize": Verb("merge segments and free disk space", lambda: import_module("holdfast.cli.optimize")),
    "export": Verb(
        "export threads as JSON lines, OpenTelemetry or a transcript",
        lambda: import_module("holdfast.cli.export"),
    ),
    "completion": Verb("write a shell completion script", lambda: import_module("holdfast.cli.completion")),
    "demo": Verb("watch an agent survive being killed repeatedly", lambda: import_module("holdfast.cli.demo")),
}
