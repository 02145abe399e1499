"""The inbox: what needs a person, with what to decide and the commands for it; answer, settle, cancel, acts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.terminal import Exit
from tests.cli.conftest import Folder
from tests.cli.given import Said, asking, in_doubt, opened, said, store
from tests.covers import covers

__all__ = ["said", "store"]  # fixtures


def test_a_question_and_a_call_in_doubt(store: Path, said: Said) -> None:
    in_doubt(store)
    with opened(store) as hf, hf.run("asks", start={}) as run:
        run.wait("approve", {"amount": 3})
    code, out, err = said("inbox")
    assert (code, err) == (Exit.IN_DOUBT, "VALUE and RESULT in a command are JSON, like true or '\"text\"'\n")
    first, second = out.split("\n\n")
    assert first.startswith("asks  question  ")  # the newest first
    assert first.splitlines()[1:] == [
        '  asks approve: {"amount": 3}',
        "    holdfast answer asks approve VALUE",
    ]
    assert second.splitlines()[1:] == [
        "  call 1: pay(amount=3)",
        "  it raised TimeoutError",
        "  Outcome unknown. Did it happen? (Declare a probe to settle this automatically.)",
        "    it happened:      holdfast settle shop 1 --happened RESULT",
        "    it did not:       holdfast settle shop 1 --not-done",
        "    stays unknown:    holdfast settle shop 1 --give-up",
    ]
    assert second.startswith("shop  in doubt  ")


def test_a_part_of_the_inbox(store: Path, said: Said) -> None:
    assert said("inbox") == (Exit.OK, "", "nothing needs you\n")
    in_doubt(store)
    asking(store)
    for words, threads in (
        ((), ["asks", "shop"]),
        (("--only", "question"), ["asks"]),
        (("--only", "in-doubt"), ["shop"]),
        (("--only", "in-doubt", "--only", "question"), ["asks", "shop"]),
        (("--only", "failed"), []),
        (("--name", "pay"), ["shop"]),
    ):
        code, told = said.json("inbox", *words)
        assert [item["thread"] for item in told["inbox"]] == threads
        assert code == (Exit.IN_DOUBT if "shop" in threads else Exit.OK)
    assert said("inbox", "--only", "failed")[2] == "nothing of this kind needs you\n"
    code, out, err = said("inbox", "--limit", "1")
    assert (code, out.startswith("asks  question"), "shop" in out) == (Exit.IN_DOUBT, True, False)
    assert err.startswith("1 more: pass --limit 0 for all, or --only with a need\n")
    assert said.json("inbox", "--limit", "1")[1]["more"] == 1
    code, err = said.refused("inbox", "--only", "nothing")
    assert code == Exit.USAGE
    assert "'question', 'approval', 'in-doubt'" in err


@covers("continuum/SessionRecovery.render_interrupted")
def test_an_interrupted_run_shows_what_to_decide_and_how_to_resume(folder: Folder) -> None:
    folder.write(
        "app.py",
        "import os, signal\n"
        "def act(letter):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "def h(run):\n    run.tool(act, {'letter': 'Dear Sir'})\n"
        "handlers = {'h': h}\ntools = [act]\n",
    )
    with folder.open() as hf:
        hf.submit("h", "t", start={})
    assert folder.run("worker", "app:handlers", "--store", "agent.db", "--until-idle")[0] != 0
    for words in ((), ("--tools", "app:tools")):
        code, out, _ = folder.run("inbox", "--store", str(folder.store), *words, "--calls")
        assert code == Exit.IN_DOUBT
        assert out.startswith("t  interrupted  ")
        assert "continues after step 0; 1 decision needed first" in out
        assert 'call 1: act(letter="Dear Sir")' in out
        # The store is the only one in this folder, so a command there finds it.
        assert "    it happened:      holdfast settle t 1 --happened RESULT\n" in out
        assert "  ? 1 act: Outcome unknown." in out
        assert out.endswith("    holdfast resume APP t\n")


def test_runs_that_failed_or_were_left(store: Path, said: Said) -> None:
    with opened(store) as hf:
        with pytest.raises(KeyboardInterrupt), hf.run("left", start={}):
            raise KeyboardInterrupt
        with pytest.raises(ValueError, match="wrong"), hf.run("broken", start={}):
            raise ValueError("wrong")
        with hf.run("between turns", start={}):
            pass
        hf.submit("h", "queued", start={})
    code, told = said.json("inbox")
    assert code == Exit.OK
    assert [(item["need"], item["thread"]) for item in told["inbox"]] == [("failed", "broken"), ("interrupted", "left")]
    assert [item["command"] for item in told["inbox"]] == ["holdfast resume APP broken", "holdfast resume APP left"]
    _, out, _ = said("inbox")
    assert "ValueError: wrong" in out
    # No worker takes it.
    code, told = said.json("inbox", "--stuck-after", "0", "--only", "stuck")
    assert [item["thread"] for item in told["inbox"]] == ["queued"]
    assert "is a worker with handler 'h' running?" in told["inbox"][0]["why"]
    assert told["inbox"][0]["command"] == "holdfast resume APP queued"


def test_a_run_that_was_given_up_is_failed(store: Path, said: Said, tmp_path: Path) -> None:
    with opened(store) as hf:
        hf.submit("h", "t", start={})

        def fail(run: object) -> None:
            raise ValueError("wrong")

        hf.worker({"h": fail}, attempts=1).run(until_idle=True)
        assert hf.run_info("t").status == "dead"  # type: ignore[union-attr]
    _, told = said.json("inbox")
    assert [(item["need"], item["thread"]) for item in told["inbox"]] == [("failed", "t")]
    assert "wrong" in told["inbox"][0]["why"]
    assert json.dumps(told).count("holdfast resume APP t") == 1


# -- answer, settle, cancel, acts -------------------------------------------------------------------------------------


def test_answer(store: Path, said: Said) -> None:
    asking(store)
    code, err = said.refused("answer", "asks", "ok?", "yes")
    assert code == Exit.USAGE
    assert "write a string as '\"yes\"'" in err
    code, out, err = said("answer", "asks", "ok?", "yes", "--text", "--by", "ann")
    assert (code, out) == (Exit.OK, "answered 'ok?' of 'asks'\n")
    assert err == "resume the run: holdfast resume APP asks\n"
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
    assert said("answer", "asks", "when?", "7", "--early") == (
        Exit.OK,
        "answered 'when?' of 'asks'\n",
        "the run waits for more: holdfast inbox\n",
    )
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
    told = {"thread": "shop", "effect": 1, "status": status, "by": "ann"}
    assert said.json("settle", "shop", "1", *words, "--by", "ann") == (Exit.OK, told)
    with opened(store) as hf:
        (effect,) = hf.effects("shop")
        assert (effect.status, effect.by) == (status, "ann")
        assert status != "done" or effect.result == {"paid": 3}
    other = ("--give-up",) if status != "given_up" else ("--not-done",)
    assert said.refused("settle", "shop", "1", *other)[0] == Exit.CONFLICT
    assert said.refused("settle", "shop", "2", *words)[0] == Exit.NOT_FOUND
    assert said.refused("settle", "shop", "1")[0] == Exit.USAGE
    assert said.refused("settle", "shop", "1", "--not-done", "--give-up")[0] == Exit.USAGE
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
