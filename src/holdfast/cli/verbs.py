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


def _import() -> Program:
    from holdfast.cli import import_

    return import_


def _ui() -> Program:
    from holdfast.cli import ui

    return ui


def _fork() -> Program:
    from holdfast.cli import fork

    return fork


def _rewind() -> Program:
    from holdfast.cli import rewind

    return rewind


def _label() -> Program:
    from holdfast.cli import label

    return label


def _tag() -> Program:
    from holdfast.cli import tag

    return tag


def _answer() -> Program:
    from holdfast.cli import answer

    return answer


def _settle() -> Program:
    from holdfast.cli import settle

    return settle


def _cancel() -> Program:
    from holdfast.cli import cancel

    return cancel


def _submit() -> Program:
    from holdfast.cli import submit

    return submit


def _resume() -> Program:
    from holdfast.cli import resume

    return resume


def _prune() -> Program:
    from holdfast.cli import prune

    return prune


def _drop() -> Program:
    from holdfast.cli import drop

    return drop


def _erase() -> Program:
    from holdfast.cli import erase

    return erase


def _optimize() -> Program:
    from holdfast.cli import optimize

    return optimize


def _export() -> Program:
    from holdfast.cli import export

    return export


def _completion() -> Program:
    from holdfast.cli import completion

    return completion


def _demo() -> Program:
    from holdfast.cli import demo

    return demo


def _threads() -> Program:
    from holdfast.cli import threads

    return threads


def _log() -> Program:
    from holdfast.cli import log

    return log


def _show() -> Program:
    from holdfast.cli import show

    return show


def _diff() -> Program:
    from holdfast.cli import diff

    return diff


def _effects() -> Program:
    from holdfast.cli import effects

    return effects


def _interrupted() -> Program:
    from holdfast.cli import interrupted

    return interrupted


def _waiting() -> Program:
    from holdfast.cli import waiting

    return waiting


def _stuck() -> Program:
    from holdfast.cli import stuck

    return stuck


def _stats() -> Program:
    from holdfast.cli import stats

    return stats


def _watch() -> Program:
    from holdfast.cli import watch

    return watch


def _doctor() -> Program:
    from holdfast.cli import doctor

    return doctor


VERBS = {
    "worker": Verb("run what was submitted, and what others left unfinished", _worker),
    "drill": Verb("kill an agent at every point of its run, and see whether it comes to the same end", _drill),
    "verify": Verb("check all that a store holds", _verify),
    "mark": Verb("write where every thread stands, to see later that none went back", _mark),
    "backup": Verb("copy a store while it is used", _backup),
    "repair": Verb("copy what can be read of a damaged store into a new one", _repair),
    "import": Verb("bring the threads of another system over", _import),
    "rekey": Verb("wrap the keys of an encrypted store by the current key", _rekey),
    "threads": Verb("list threads: what each is doing, its steps, tokens, cost, size and age", _threads),
    "log": Verb("show the checkpoints of a thread, with branches, crashes and resumes", _log),
    "show": Verb("show a checkpoint: its messages as a chat, its state as a tree", _show),
    "diff": Verb("show what changed between two checkpoints", _diff),
    "effects": Verb("show the journal of a thread: every call, and what became of it", _effects),
    "interrupted": Verb("list runs whose process is gone, and what a resume would do", _interrupted),
    "waiting": Verb("list what runs wait for: questions, and calls in doubt", _waiting),
    "stuck": Verb("list runs that get nowhere, and why", _stuck),
    "stats": Verb("say how large a store is, how it grew, and what sharing saved", _stats),
    "watch": Verb("follow a thread live", _watch),
    "doctor": Verb("look whether a store can be reached, read and written, its clock, disk and versions", _doctor),
    "ui": Verb("look at a store in a browser", _ui),
    "fork": Verb("begin a new thread at a checkpoint of another", _fork),
    "rewind": Verb("make an earlier checkpoint the head of its thread", _rewind),
    "label": Verb("give a checkpoint a label", _label),
    "tag": Verb("add a tag to a checkpoint", _tag),
    "answer": Verb("answer a question that a run waits for", _answer),
    "settle": Verb("say what became of a call in doubt", _settle),
    "cancel": Verb("halt a run", _cancel),
    "submit": Verb("queue a run for any worker", _submit),
    "resume": Verb("go on with the run of one thread", _resume),
    "prune": Verb("delete checkpoints that need not be kept", _prune),
    "drop": Verb("delete whole threads", _drop),
    "erase": Verb("remove all about a thread, from the files, too", _erase),
    "optimize": Verb("merge, tidy up, give space back", _optimize),
    "export": Verb("write threads as JSON lines", _export),
    "completion": Verb("write the completion script of a shell", _completion),
    "demo": Verb("watch an agent that is killed again and again", _demo),
}
