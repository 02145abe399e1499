"""Fork, rewind, label, tag, prune, drop and erase: what they do, what they write, how they end."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.main import main
from holdfast.cli.terminal import Exit
from tests.cli.given import Said, asking, opened, said, state_of, store

__all__ = ["said", "store"]  # fixtures


# -- fork --------------------------------------------------------------------------------------------------------------


def test_fork(store: Path, said: Said) -> None:
    code, out, err = said("fork", "notes@two", "other")
    assert (code, err) == (Exit.OK, "")
    assert out.startswith("'other' forked from ")
    assert out.endswith("(step 2, 'two') of 'notes'\n")
    assert state_of(store, "other") == {"n": 2}
    code, made = said.json("fork", "notes", "third")
    assert code == Exit.OK
    assert (made["thread"], made["seq"], made["step"], made["from"]["thread"]) == ("third", 1, 3, "notes")
    assert set(made) == {"thread", "id", "seq", "step", "label", "tags", "from"}
    code, err = said.refused("fork", "notes@-1", "other")
    assert code == Exit.CONFLICT
    assert "under another name" in err


def test_fork_with_an_edited_state(store: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("state.json").write_text('{"n": 7, "when": {"$date": "2026-11-15"}}')
    assert said("fork", "notes@2", "edited", "--state", "state.json")[0] == Exit.OK
    assert state_of(store, "edited")["when"].isoformat() == "2026-11-15"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"n": 8}')))
    assert said("fork", "notes@2", "piped", "--state", "-")[0] == Exit.OK
    assert state_of(store, "piped") == {"n": 8}
    Path("state.json").write_text('{"n": ')
    code, err = said.refused("fork", "notes", "bad", "--state", "state.json")
    assert code == Exit.USAGE
    assert "the state in state.json is not JSON (line 1, column 7)" in err
    (store.parent / "null.json").write_text("null")
    code, err = said.refused("fork", "notes", "bad", "--state", "null.json")
    assert code == Exit.USAGE
    assert "null" in err
    code, err = said.refused("fork", "notes", "bad", "--state", "none.json")
    assert code == Exit.USAGE
    assert "cannot read none.json (No such file or directory); nothing was changed. Check the path." in err


@pytest.mark.parametrize(
    "words",
    [
        ("fork", "note", "x"),
        ("rewind", "note@1"),
        ("label", "note", "x"),
        ("tag", "note", "x"),
        ("answer", "note", "x", "1"),
        ("settle", "note", "1", "--not-done"),
        ("cancel", "note"),
        ("prune", "note", "--keep-last", "1"),
        ("drop", "note"),
        ("erase", "note"),
        ("export", "note"),
    ],
    ids=lambda words: words[0],
)
def test_a_thread_that_is_not_there_is_not_found_and_another_is_suggested(
    words: tuple[str, ...], store: Path, said: Said
) -> None:
    code, err = said.refused(*words)
    assert code == Exit.NOT_FOUND
    assert "did you mean 'notes'?" in err.lower()
    assert said.refused(*words, "--store", str(store.parent / "none.db"))[0] == Exit.NOT_FOUND
    assert not (store.parent / "none.db").exists()


# -- rewind ------------------------------------------------------------------------------------------------------------


def test_rewind(store: Path, said: Said) -> None:
    code, out, _ = said("rewind", "notes@-2")
    assert code == Exit.OK
    assert out.startswith("'notes' rewound to ")
    assert state_of(store, "notes") == {"n": 2}
    code, made = said.json("rewind", "notes@1")
    assert (code, made["done"], made["step"], made["passed"]) == (Exit.OK, True, 1, [])
    assert said.refused("rewind", "notes")[0] == Exit.USAGE
    assert said.refused("rewind", "notes@9")[0] == Exit.NOT_FOUND


def test_rewind_shows_what_it_would_go_back_past(store: Path, said: Said) -> None:
    @holdfast.tool(effect="irreversible")
    def pay(amount: int) -> int:
        return amount

    with opened(store, tools=[pay]) as hf, hf.run("shop", start={"n": 0}) as run:
        for _ in run.steps():
            run.tool("pay", {"amount": 3})
            run.finish("paid")
    code, out, err = said("rewind", "shop@0")
    assert code == Exit.CONFLICT
    assert out == "! step 1  call 1  pay (irreversible, done)  'shop'\n"
    assert "--past-effects" in err
    code, made = said.json("rewind", "shop@0")
    assert (code, made["done"]) == (Exit.CONFLICT, False)
    passed = {"thread": "shop", "number": 1, "step": 1, "name": "pay", "effect": "irreversible", "status": "done"}
    assert made["passed"] == [{**passed, "must_confirm": True}]
    assert said("rewind", "shop@0", "--dry-run")[0] == Exit.OK
    with opened(store) as hf:
        assert hf.thread("shop").step() == 1
    assert said("rewind", "shop@0", "--past-effects")[0] == Exit.OK
    with opened(store) as hf:
        assert hf.thread("shop").step() == 0


# -- label, tag --------------------------------------------------------------------------------------------------------


def test_label_and_tag(store: Path, said: Said) -> None:
    code, out, _ = said("label", "notes@1", "first")
    assert code == Exit.OK
    assert "has the label 'first'" in out
    assert state_of(store, "notes", "@first") == {"n": 1}
    assert state_of(store, "notes") == {"n": 3}
    code, made = said.json("tag", "notes@first", "good")
    assert (code, made["label"], made["tags"]) == (Exit.OK, "first", ["good"])
    assert set(made) == {"thread", "id", "seq", "step", "label", "tags", "of"}
    assert said.refused("label", "notes", "")[0] == Exit.USAGE


def test_a_run_that_goes_on_is_not_labelled(store: Path, said: Said) -> None:
    asking(store)
    code, err = said.refused("label", "asks", "x")
    assert code == Exit.CONFLICT
    assert "Fork the thread" in err


# -- prune, drop, erase ------------------------------------------------------------------------------------------------


def test_prune_shows_its_plan_first(store: Path, said: Said) -> None:
    words = ("prune", "notes", "--keep-last", "1")
    plan = "'notes': 1 of 3 checkpoints to delete\n"
    code, out, err = said(*words)
    assert (code, out) == (Exit.USAGE, plan)
    assert "--yes" in err
    assert said(*words, "--dry-run") == (Exit.OK, plan, "")
    code, told = said.json(*words, "--dry-run")
    assert (code, told["done"]) == (Exit.OK, False)
    (gone,) = told["threads"]
    assert (gone["thread"], gone["kept"], [each["seq"] for each in gone["removed"]]) == ("notes", 2, [1])
    with opened(store) as hf:
        assert hf.thread("notes").count() == 3
    assert said(*words, "--yes") == (Exit.OK, f"{plan}1 checkpoint deleted in 1 thread\n", "")
    with opened(store) as hf:
        assert hf.thread("notes").count() == 2
    assert said("prune", "--all", "--older-than", "2d", "--yes") == (Exit.OK, "nothing to prune\n", "")
    assert said.json("prune", "--prefix", "no", "--older-than", "2d") == (Exit.OK, {"done": True, "threads": []})


def test_prune_is_told_what_and_which(store: Path, said: Said) -> None:
    for words in (
        ("--keep-last", "1"),
        ("notes", "--all", "--keep-last", "1"),
        ("notes",),
        ("notes", "--keep-last", "-1"),
        ("notes", "--older-than", "soon"),
        ("notes", "--keep-last", "1", "--yes", "--dry-run"),
    ):
        assert said.refused("prune", *words)[0] == Exit.USAGE


def test_drop(store: Path, said: Said) -> None:
    asking(store)
    code, out, _ = said("drop", "notes", "asks")
    assert (code, out) == (
        Exit.USAGE,
        "'notes': 3 checkpoints, saved\n'asks': 1 checkpoint, 1 journal entry, waiting\n",
    )
    code, told = said.json("drop", "notes", "--yes")
    assert (code, told["done"]) == (Exit.OK, True)
    assert told["threads"] == [{"thread": "notes", "checkpoints": 3, "entries": 0, "status": "running"}]
    with opened(store) as hf:
        assert [info.name for info in hf.threads()] == ["asks"]


def test_a_thread_that_is_run_is_neither_dropped_nor_erased(store: Path, said: Said) -> None:
    with opened(store) as hf, hf.run("held", start={"n": 0}):
        for verb in ("drop", "erase"):
            code, _, err = said(verb, "held", "--yes")
            assert code == Exit.CONFLICT
            assert "held" in err
    with opened(store) as hf:
        assert hf.thread("held").count() == 1


def test_erase(store: Path, said: Said) -> None:
    with opened(store) as hf:
        hf.thread("notes").fork("fork")
        hf.thread("ann").save({"n": 1}, metadata={"user": "ann"})
    code, out, _ = said("erase", "notes")
    assert code == Exit.USAGE
    assert out == "'notes' would be erased\nkept: 'fork', a fork; --forks erases it too\n"
    code, told = said.json("erase", "--metadata", 'user="ann"', "--yes")
    assert (code, told["done"], told["pending"], told["threads"]) == (Exit.OK, True, False, ["ann"])
    assert set(told) == {"done", "pending", "threads", "forks_left", "blobs_kept", "beyond"}
    code, out, _ = said("erase", "notes", "--forks", "--yes")
    assert code == Exit.OK
    assert out.endswith("2 threads erased\n")
    with opened(store) as hf:
        assert not list(hf.threads())
    code, out, _ = said("erase", "notse", "--yes")  # an erase that was interrupted may be repeated
    assert code == Exit.OK
    assert out.endswith("0 threads erased\nthere is no thread 'notse'\n")
    for words in ((), ("notes", "--metadata", "a=1"), ("--metadata", "a"), ("--metadata", "a=b")):
        assert said.refused("erase", *words)[0] == Exit.USAGE


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "is_gone"), [("y\n", True), ("\n", False), ("no\n", False), ("", False)])
def test_somebody_at_a_terminal_is_asked(
    typed: str, is_gone: bool, store: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    monkeypatch.setattr(sys, "stderr", talk)
    assert main(["drop", "notes"]) == Exit.OK
    assert talk.getvalue().splitlines()[1].startswith("Continue? [y/N] ")
    with opened(store) as hf:
        assert (hf.thread("notes").count() == 0) is is_gone
