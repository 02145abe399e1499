"""Messages that speak Python are told in verbs of the command line."""

from __future__ import annotations

import re
from errno import ENOSPC
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.main import VERBS
from holdfast.cli.terminal import message_of, worded
from holdfast.errors import StoreError
from tests.cli import looked
from tests.cli.looked import Say

say = looked.say  # fixtures are found by where they stand
store = looked.store


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("it has no effect 7; hf.effects() lists them", "it has no effect 7; `holdfast effects` lists them"),
        ("use hf.settle; hf.waiting shows it", "use `holdfast settle`; `holdfast inbox` shows it"),
        ("hf.run goes on with it", "`holdfast resume` goes on with it"),
        ("use pg_dump, and hf.repair(target) into", "use pg_dump, and `holdfast repair` into"),
        ("thread 'hf.run' has none; hf.threads() lists", "thread 'hf.run' has none; `holdfast threads` lists"),
        ("nothing of that kind", "nothing of that kind"),
        (
            "hf.run failed:\nTraceback:\n    with hf.run(name) as run:\nKeyError: 'hf.run'",
            "`holdfast resume` failed:\nTraceback:\n    with hf.run(name) as run:\nKeyError: 'hf.run'",
        ),
    ],
)
def test_what_is_told(message: str, told: str) -> None:
    assert worded(message) == told


def test_the_reason_of_the_system_is_told_once() -> None:
    def told(message: str) -> str:
        error = StoreError(message)
        error.__cause__ = OSError(ENOSPC, "No space left on device")
        return message_of(error)

    assert told("the copy cannot be written. Try again.") == (
        "the copy cannot be written. Try again (No space left on device)."
    )
    assert told("a file cannot be written (No space left on device). Check the disk.") == (
        "a file cannot be written (No space left on device). Check the disk."
    )


def test_every_verb_that_is_told_is_one() -> None:
    source = Path(holdfast.__file__).parent
    for path in source.rglob("*.py"):
        for text in re.findall(r"hf\.[a-z]+(?:\(\))? [a-z]+", path.read_text("utf-8")):
            for verb in re.findall(r"`holdfast (\S+)`", worded(text)):
                assert verb in VERBS


@pytest.mark.parametrize(
    "words",
    [
        ("show", "notes@77"),
        ("settle", "shop", "99", "--not-done"),
        ("rewind", "paid@0"),
        ("cancel", "done"),
        ("label", "invoice", "x"),
    ],
    ids=" ".join,
)
def test_no_refusal_names_a_method(say: Say, store: Path, words: tuple[str, ...]) -> None:
    with holdfast.open(store, durability="off") as hf, hf.run("paid", start={}) as run:
        run.tool(holdfast.tool(effect="irreversible")(pay), {})
        run.save()
    code, _, err = say(*words)
    assert code in (3, 4)
    assert not re.search(r"hf\.|\(\)|=True", err), err


@pytest.mark.parametrize(
    "words",
    [
        ("answer", "THREAD", "ok?", "1"),
        ("settle", "THREAD", "1", "--not-done"),
        ("cancel", "THREAD"),
        ("fork", "THREAD", "new"),
        ("rewind", "THREAD@1"),
        ("label", "THREAD", "x"),
        ("tag", "THREAD", "x"),
        ("prune", "THREAD", "--keep-last", "1"),
        ("drop", "THREAD", "--dry-run"),
        ("erase", "THREAD", "--dry-run"),
    ],
    ids=lambda words: words[0],
)
def test_a_command_that_changes_says_that_it_changed_nothing(say: Say, store: Path, words: tuple[str, ...]) -> None:
    for name, advice in (("zzz", "`holdfast threads` lists the threads."), ("invoic", "Did you mean 'invoice'?")):
        code, _, err = say(*(each.replace("THREAD", name) for each in words))
        assert (code, err) == (3, f"holdfast {words[0]}: there is no thread {name!r}; nothing was changed. {advice}\n")


@pytest.mark.parametrize(
    "words", [("fork", "new"), ("rewind",), ("label", "x"), ("tag", "x")], ids=lambda words: words[0]
)
def test_a_command_that_finds_no_checkpoint_says_so(say: Say, store: Path, words: tuple[str, ...]) -> None:
    code, _, err = say(words[0], "invoice@77", *words[1:])
    missing = "thread 'invoice' has no checkpoint '@77'; nothing was changed. `holdfast log` lists all checkpoints."
    assert (code, err) == (3, f"holdfast {words[0]}: {missing}\n")


def pay() -> None:
    """Done at once."""


def test_an_act_that_is_no_id_of_an_act(say: Say, store: Path) -> None:
    code, _, err = say("release", "pay", "--by", "ann", "--reason", "a test")
    assert (code, err) == (
        2,
        "holdfast release: ACT must be an id; nothing was changed. `holdfast acts` shows the ids of acts.\n",
    )
