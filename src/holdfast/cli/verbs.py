"""The verbs of the command line: what each is for, and where it is found when it is called."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Final, NamedTuple, Protocol, cast


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
    module: Callable[[], ModuleType]

    def load(self) -> Program:
        return cast("Program", self.module())


VERBS: Final = {
    "worker": Verb(
        "run what was submitted, and what others left unfinished", lambda: import_module("holdfast.cli.worker")
    ),
    "drill": Verb(
        "kill an agent at every point of its run, and see whether it comes to the same end",
        lambda: import_module("holdfast.cli.drill"),
    ),
    "verify": Verb("check all that a store holds", lambda: import_module("holdfast.cli.verify")),
    "mark": Verb(
        "write where every thread stands, to see later that none went back", lambda: import_module("holdfast.cli.mark")
    ),
    "backup": Verb("copy a store while it is used", lambda: import_module("holdfast.cli.backup")),
    "repair": Verb(
        "copy what can be read of a damaged store into a new one", lambda: import_module("holdfast.cli.repair")
    ),
    "import": Verb("bring the threads of another system over", lambda: import_module("holdfast.cli.import_")),
    "rekey": Verb(
        "wrap the keys of an encrypted store by the current key", lambda: import_module("holdfast.cli.rekey")
    ),
    "threads": Verb(
        "list threads: what each is doing, its steps, tokens, cost, size and age",
        lambda: import_module("holdfast.cli.threads"),
    ),
    "log": Verb(
        "show the checkpoints of a thread, with branches, crashes and resumes",
        lambda: import_module("holdfast.cli.log"),
    ),
    "show": Verb(
        "show a checkpoint: its messages as a chat, its state as a tree", lambda: import_module("holdfast.cli.show")
    ),
    "diff": Verb("show what changed between two checkpoints", lambda: import_module("holdfast.cli.diff")),
    "effects": Verb(
        "show the journal of a thread: every call, and what became of it", lambda: import_module("holdfast.cli.effects")
    ),
    "interrupted": Verb(
        "list runs whose process is gone, and what a resume would do", lambda: import_module("holdfast.cli.interrupted")
    ),
    "waiting": Verb(
        "list what runs wait for: questions, and calls in doubt", lambda: import_module("holdfast.cli.waiting")
    ),
    "stuck": Verb("list runs that get nowhere, and why", lambda: import_module("holdfast.cli.stuck")),
    "stats": Verb(
        "say how large a store is, how it grew, and what sharing saved", lambda: import_module("holdfast.cli.stats")
    ),
    "watch": Verb("follow a thread live", lambda: import_module("holdfast.cli.watch")),
    "doctor": Verb(
        "look whether a store can be reached, read and written, its clock, disk and versions",
        lambda: import_module("holdfast.cli.doctor"),
    ),
    "ui": Verb("look at a store in a browser", lambda: import_module("holdfast.cli.ui")),
    "fork": Verb("begin a new thread at a checkpoint of another", lambda: import_module("holdfast.cli.fork")),
    "rewind": Verb("make an earlier checkpoint the head of its thread", lambda: import_module("holdfast.cli.rewind")),
    "label": Verb("give a checkpoint a label", lambda: import_module("holdfast.cli.label")),
    "tag": Verb("add a tag to a checkpoint", lambda: import_module("holdfast.cli.tag")),
    "answer": Verb("answer a question that a run waits for", lambda: import_module("holdfast.cli.answer")),
    "settle": Verb("say what became of a call in doubt", lambda: import_module("holdfast.cli.settle")),
    "cancel": Verb("halt a run", lambda: import_module("holdfast.cli.cancel")),
    "submit": Verb("queue a run for any worker", lambda: import_module("holdfast.cli.submit")),
    "resume": Verb("go on with the run of one thread", lambda: import_module("holdfast.cli.resume")),
    "prune": Verb("delete checkpoints that need not be kept", lambda: import_module("holdfast.cli.prune")),
    "drop": Verb("delete whole threads", lambda: import_module("holdfast.cli.drop")),
    "erase": Verb("remove all about a thread, from the files, too", lambda: import_module("holdfast.cli.erase")),
    "optimize": Verb("merge, tidy up, give space back", lambda: import_module("holdfast.cli.optimize")),
    "export": Verb(
        "write threads for others to read: JSON lines, OpenTelemetry, a transcript",
        lambda: import_module("holdfast.cli.export"),
    ),
    "completion": Verb("write the completion script of a shell", lambda: import_module("holdfast.cli.completion")),
    "demo": Verb("watch an agent that is killed again and again", lambda: import_module("holdfast.cli.demo")),
}
