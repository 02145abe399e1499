"""The verbs that steer, as a person gives them: what they do, what they write, how they end."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.main import main
from tests.cli.conftest import Folder


class Said:
    """Gives commands, and keeps what they say apart."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = main(words)
        out, err = self._capfd.readouterr()
        assert "Traceback" not in err
        return code, out, err

    def json(self, *words: str) -> tuple[int, Any]:
        code, out, _ = self(*words, "--json")
        return code, json.loads(out)

    def refused(self, *words: str) -> tuple[int, str]:
        """The code of a command that cannot be done, and the one line that says so."""
        code, out, err = self(*words)
        assert out == ""
        assert err.count("\n") == 1, err
        return code, err


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Said:
    return Said(capfd)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HOLDFAST_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    path = tmp_path / "agent.db"
    monkeypatch.setenv("HOLDFAST_STORE", str(path))
    with opened(path) as hf:
        for n in range(1, 4):
            hf.thread("notes").save({"n": n}, label="two" if n == 2 else None)
    return path


def opened(path: Path, **given: Any) -> Holdfast:
    return holdfast.open(path, durability="off", **given)


def state_of(path: Path, thread: str, ref: str = "@-1") -> Any:
    with opened(path) as hf:
        return hf.thread(thread).load(ref).state


def in_doubt(path: Path) -> None:
    @holdfast.tool(effect="irreversible", name="pay")
    def pay(amount: int) -> None:
        raise TimeoutError

    with opened(path, tools=[pay]) as hf, hf.run("shop", start={"n": 0}) as run:
        for _ in run.steps():
            run.tool("pay", {"amount": 3})


def asking(path: Path) -> None:
    with opened(path) as hf, hf.run("asks", start={"n": 0}) as run:
        for _ in run.steps():
            run.wait("ok?")


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
    assert "cannot read none.json" in err


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
    assert "did you mean 'notes'?" in err
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
    assert out == "! step 1  effect 1  pay (irreversible, done)  'shop'\n"
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


# -- answer, settle, cancel, submit ------------------------------------------------------------------------------------


def test_answer(store: Path, said: Said) -> None:
    asking(store)
    code, err = said.refused("answer", "asks", "ok?", "yes")
    assert code == Exit.USAGE
    assert "write a string as '\"yes\"'" in err
    assert said("answer", "asks", "ok?", "yes", "--text", "--by", "ann") == (
        Exit.OK,
        "answered 'ok?' of 'asks'\n",
        "",
    )
    assert said.json("answer", "asks", "ok?", '"yes"') == (Exit.OK, {"thread": "asks", "name": "ok?", "by": None})
    assert said.refused("answer", "asks", "ok?", "2")[0] == Exit.CONFLICT
    assert said.refused("answer", "notes", "ok?", "2")[0] == Exit.NOT_FOUND
    with opened(store) as hf, hf.run("asks") as run:
        for _ in run.steps():
            run.finish(run.wait("ok?"))
    assert run.result == "yes"


def test_an_early_answer_is_kept_for_the_question(store: Path, said: Said) -> None:
    asking(store)
    code, err = said.refused("answer", "asks", "when?", "7")
    assert code == Exit.CONFLICT
    assert "early" in err, "the error says how to answer it all the same"
    assert said("answer", "asks", "when?", "7", "--early") == (Exit.OK, "answered 'when?' of 'asks'\n", "")
    assert said("answer", "asks", "ok?", "1", "--early")[0] == Exit.OK, "a question that is open is answered too"
    assert said.refused("answer", "asks", "when?", "8", "--early")[0] == Exit.CONFLICT
    with opened(store) as hf, hf.run("asks") as run:
        for _ in run.steps():
            run.finish([run.wait("ok?"), run.wait("when?")])
    assert run.result == [1, 7]


@pytest.mark.parametrize(
    ("words", "status"),
    [(("--happened", '{"paid": 3}'), "done"), (("--not-done",), "not_done"), (("--give-up",), "given_up")],
)
def test_settle(words: tuple[str, ...], status: str, store: Path, said: Said) -> None:
    in_doubt(store)
    assert said.json("settle", "shop", "1", *words) == (Exit.OK, {"thread": "shop", "effect": 1, "status": status})
    with opened(store) as hf:
        (effect,) = hf.effects("shop")
        assert effect.status == status
        assert status != "done" or effect.result == {"paid": 3}
    other = ("--give-up",) if status != "given_up" else ("--not-done",)
    assert said.refused("settle", "shop", "1", *other)[0] == Exit.CONFLICT
    assert said.refused("settle", "shop", "2", *words)[0] == Exit.NOT_FOUND
    assert said.refused("settle", "shop", "1")[0] == Exit.USAGE
    assert said.refused("settle", "shop", "one", "--not-done")[0] == Exit.USAGE


def test_acts_and_release(store: Path, said: Said) -> None:
    paid: list[str] = []

    @holdfast.tool(name="pay", identity=("invoice",))
    def pay(invoice: str) -> str:
        paid.append(invoice)
        return f"receipt {len(paid)}"

    def run(thread: str) -> None:
        with opened(store) as hf, hf.run(thread, start={}) as run:
            for _ in run.steps():
                run.tool(pay, {"invoice": "A-17"})
                break

    assert said("acts")[2].endswith("no acts are claimed\n")
    run("one")
    code, found = said.json("acts", "pay")
    assert (code, found["more"]) == (Exit.OK, False)
    [act] = found["acts"]
    assert (act["thread"], act["status"], act["identity"]) == ("one", "done", '{"invoice":"A-17"}')
    code, out, _ = said("acts")
    assert code == Exit.OK
    assert 'pay {"invoice":"A-17"}  done  one call 1' in out
    assert said("acts", "--limit", "0")[2].endswith("pass --limit\n")
    assert said.json("acts", "other")[1] == {"acts": [], "more": False}
    who = ("--by", "anna", "--reason", "it bounced")
    assert said.refused("release", "ab" * 32, *who)[0] == Exit.NOT_FOUND
    assert said.refused("release", "one", *who)[0] == Exit.USAGE
    assert said.refused("release", act["id"])[0] == Exit.USAGE
    assert said.json("release", act["id"], *who) == (Exit.OK, {"act": act["id"], "status": "released"})
    assert "released by anna: it bounced" in said("acts")[1]
    run("two")
    assert len(paid) == 2


def test_cancel(store: Path, said: Said) -> None:
    asking(store)
    assert said("cancel", "asks", "--reason", "no more") == (Exit.OK, "'asks' is halted\n", "")
    told = {"thread": "asks", "halted": True, "status": "halted", "reason": "again"}
    assert said.json("cancel", "asks", "--reason", "again") == (Exit.OK, told)
    assert said.refused("cancel", "notes")[0] == Exit.NOT_FOUND


def test_submit(store: Path, said: Said) -> None:
    assert said("submit", "h", "new", "--start", '{"n": 1}') == (Exit.OK, "'new' is queued for handler 'h'\n", "")
    Path("start.json").write_text('{"n": 1}')
    told = {"thread": "new", "handler": "h", "status": "queued", "priority": 0}
    assert said.json("submit", "h", "new", "--start", "@start.json") == (Exit.OK, told)
    urgent = said("submit", "h", "urgent", "--start", "{}", "--priority", "9")
    assert urgent == (Exit.OK, "'urgent' is queued for handler 'h' with priority 9\n", "")
    assert "queued (priority 9)" in said("threads", "urgent")[1]
    assert said.refused("submit", "h", "other", "--start", "{}", "--priority", "101")[0] == Exit.USAGE
    assert said.refused("submit", "h", "new", "--start", "{}")[0] == Exit.CONFLICT
    assert said.refused("submit", "h", "new")[0] == Exit.USAGE
    assert said.refused("submit", "h", "new", "--start", "nothing")[0] == Exit.USAGE
    assert said.refused("submit", "h", "new", "--start", "-")[0] == Exit.USAGE
    assert said.refused("submit", "h", "new", "--start", "{}", "--store", "memory:")[0] == Exit.USAGE


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
        "'notes': 3 checkpoints, running\n'asks': 1 checkpoint, 1 journal entry, waiting\n",
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
    assert set(told) == {"done", "pending", "threads", "forks_left", "values_kept", "beyond"}
    code, out, _ = said("erase", "notes", "--forks", "--yes")
    assert code == Exit.OK
    assert out.endswith("2 threads erased\n")
    with opened(store) as hf:
        assert not list(hf.threads())
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
    assert talk.getvalue().startswith("Continue? [y/N] ")
    with opened(store) as hf:
        assert (hf.thread("notes").count() == 0) is is_gone


# -- the store ---------------------------------------------------------------------------------------------------------


def test_optimize(store: Path, said: Said) -> None:
    code, out, _ = said("optimize")
    assert code == Exit.OK
    assert out.endswith(" merged\n")
    code, told = said.json("optimize")
    assert (code, set(told), told["damaged"]) == (Exit.OK, {"merged", "damaged"}, 0)


def test_export_and_import(store: Path, said: Said) -> None:
    code, told = said.json("export", "--output", "all.jsonl")
    assert code == Exit.OK
    assert (told["threads"], told["checkpoints"], told["entries"], told["ok"]) == (1, 3, 0, True)
    assert set(told) == {"target", "ok", "threads", "checkpoints", "entries", "bytes", "left_out"}
    code, out, err = said("export", "notes")
    assert code == Exit.OK
    # Each export has its own time and thread numbers.
    assert out.splitlines()[2:-2] == Path("all.jsonl").read_text().splitlines()[2:-2] != []
    assert err.startswith("1 thread, 3 checkpoints, 0 journal entries: ")
    assert said.refused("export", "--output", "all.jsonl")[0] == Exit.USAGE
    assert said.refused("export", "notes", "--prefix", "n")[0] == Exit.USAGE
    assert said.refused("export", "--json")[0] == Exit.USAGE
    code, out, _ = said("import", "jsonl", "all.jsonl", "--store", "dir:other")
    assert code == Exit.OK
    assert out.startswith("1 thread: 3 checkpoints")
    code, told = said.json("import", "jsonl", "all.jsonl", "--store", "dir:other")
    assert (code, told["checkpoints"], told["present"]) == (Exit.OK, 0, 3)
    assert said.refused("import", "jsonl", "none.jsonl")[0] == Exit.NOT_FOUND
    Path("cut").write_bytes(Path("all.jsonl").read_bytes()[:-300])
    assert said("import", "jsonl", "cut", "--store", "dir:third")[0] == Exit.ERROR


def test_export_to_a_pipe_that_closes(store: Path, folder: Folder) -> None:
    with opened(store) as hf:
        hf.thread("large").save({"text": [f"line {n} " * 99 for n in range(4000)]})
    command = f"{sys.executable} -m holdfast export --store {store} | head -c 10"
    words = ("-c", f"{command}; exit ${{PIPESTATUS[0]}}")
    done = subprocess.run(["bash", *words], capture_output=True, text=True, check=False)  # noqa: S607 - any bash
    assert (done.returncode, done.stderr) == (Exit.UNREAD, "")


# -- demo --------------------------------------------------------------------------------------------------------------


def test_demo(said: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, told = said.json("demo")
    assert code == Exit.OK
    assert told["path"].endswith("examples/demo.py")
    code, out, _ = said("demo", "--", "--help")
    assert code == Exit.OK
    assert "--kills" in out
    from holdfast.cli import demo

    monkeypatch.setattr(demo, "__file__", str(tmp_path / "a" / "b" / "c" / "demo.py"))
    code, err = said.refused("demo")
    assert code == Exit.ERROR
    assert "make demo" in err
    assert said.json("demo")[0] == Exit.ERROR
