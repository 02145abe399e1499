"""The tour of a new user on the command line: the demo, its inbox, a decision, a fork that is run, what differs, and a
transcript; then the same with an agent of their own.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pytest

from tests.cli.conftest import Folder
from tests.examples.played import played_demo

APP = """
import holdfast

@holdfast.tool(effect="irreversible")
def send_mail(to, subject):
    open("outbox", "a").write(f"{to}: {subject}\\n")
    if len(open("outbox").readlines()) == 1:
        raise TimeoutError("no answer from the mail server")
    return {"sent": to}

def clerk(run):
    for step in run.steps():
        messages = run.state["messages"]
        messages.append({"role": "assistant", "content": f"Mail {step} for {run.state['to']}"})
        run.tool(send_mail, {"to": run.state["to"], "subject": f"Invoice {step}"}, key=f"mail {step}")
        if step == 2:
            return {"mails": step}

handlers = {"clerk": clerk}
"""


def printed_commands(output: str) -> list[list[str]]:
    """The commands that the demo ends with, in order."""
    lines = output.partition("\nLook at it:\n")[2].splitlines()
    found = (re.fullmatch(r"  (?:\S+ -m )?holdfast (.+)", line) for line in lines)
    return [shlex.split(each[1]) for each in found if each is not None]


def test_the_tour_of_the_demo(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> None:
    kept = played_demo(tmp_path_factory)
    shutil.copytree(kept / "killed", folder.path, dirs_exist_ok=True)
    letters = folder.path / "letters.csv"

    def give(*words: str, code: int = 0) -> str:
        found, out, err = folder.run(*words)
        assert found == code, (words, out, err)
        assert err.startswith("using agent.db (found in the current folder)\n")
        return out

    # The commands that the demo prints, one after the other.
    commands = printed_commands((kept / "output.txt").read_text("utf-8"))
    threads, log, effects, ui, inbox, settle, resume, drill = commands
    assert (ui, drill[0]) == (["ui"], "drill")  # other tests start these
    rows = [re.split("  +", row)[:2] for row in give(*threads).splitlines()[1:]]
    assert rows == [["your-turn", "interrupted (1 in doubt)"], ["invoices", "completed"]]
    assert "! the process died; resumed " in give(*log)
    assert "  by " not in give(*effects)
    found = give(*inbox, code=5)
    assert 'call 1: post_letter(to="Northern Mill", text="Thank you for the delivery.")' in found
    assert "    it happened:      holdfast settle your-turn 1 --happened RESULT\n" in found
    assert letters.read_text().count("\n") == 1
    assert give(*settle) == "call 1 of 'your-turn' is settled: done\n"
    assert give(*resume) == "'your-turn' is completed: {\"letters\": 2}\n"
    assert letters.read_text().count("\n") == 2
    assert "by you" in give("effects")
    assert give("inbox") == ""

    # The same run with other letters, in a fork: it asks before a new one, and repeats none that was posted.
    state = json.loads(give("show", "your-turn@0", "--raw"))
    folder.write("edited.json", json.dumps({**state, "to": ["Ink & Sons", "Paper Union"]}))
    give("fork", "your-turn@0", "again", "--state", "edited.json")
    give("resume", resume[1], "again", code=5)
    assert 'call 1: post_letter(to="Ink & Sons", ' in give("inbox", code=5)
    give("settle", "again", "1", "--allow", "--by", "you")
    assert give("resume", resume[1], "again") == "'again' is completed: {\"letters\": 2}\n"
    assert [letter.partition(",")[0] for letter in letters.read_text().splitlines()] == [
        "Northern Mill",
        "Paper Union",
        "Ink & Sons",
    ]
    assert '"Northern Mill" → "Ink & Sons"' in give("diff", "your-turn", "again")
    give("export", "--format", "markdown", "again", "-o", "again.md")
    assert "Ink & Sons" in (folder.path / "again.md").read_text()
    give("verify")


def test_the_tour_of_an_agent_of_ones_own(folder: Folder) -> None:
    folder.write("app.py", APP)
    folder.write("holdfast.toml", 'store = "agent.db"\n')
    outbox = folder.path / "outbox"

    def give(*words: str, code: int = 0) -> str:
        found, out, err = folder.run(*words)
        assert found == code, (words, out, err)
        assert err.startswith("using agent.db (named in holdfast.toml)\n")
        return out

    give("submit", "clerk", "invoice-42", "--start", '{"to": "ann@example.com", "messages": []}')
    give("worker", "app:handlers", "--until-idle")
    assert "in doubt (send_mail)" in give("threads")

    # The inbox has the arguments, what is known, and the commands.
    inbox = give("inbox", code=5)
    assert 'call 1: send_mail(to="ann@example.com", subject="Invoice 1")' in inbox
    assert "it raised TimeoutError: no answer from the mail server" in inbox
    assert "    it happened:      holdfast settle invoice-42 1 --happened RESULT\n" in inbox
    give("settle", "invoice-42", "1", "--happened", '{"sent": "ann@example.com"}', "--by", "ben")
    give("worker", "app:handlers", "--until-idle")
    assert json.loads(give("result", "invoice-42")) == {"mails": 2}
    assert outbox.read_text().count("\n") == 2
    assert "by ben" in give("effects")
    give("inbox")

    # A fork of an earlier step, with an edited state, is run again: it asks before it acts.
    assert give("log").startswith("@ ")
    folder.write("edited.json", '{"to": "cleo@example.com", "messages": []}')
    give("fork", "invoice-42@1", "second", "--state", "edited.json")
    give("resume", "app:handlers", "second", code=5)
    assert "second  approval  " in give("inbox", code=5)
    assert outbox.read_text().count("\n") == 2
    give("settle", "second", "1", "--allow", "--by", "ben")
    assert give("resume", "app:handlers", "second") == "'second' is completed: {\"mails\": 2}\n"
    assert outbox.read_text().splitlines()[-1] == "cleo@example.com: Invoice 2"
    assert '~ $.to  "ann@example.com" → "cleo@example.com"' in give("diff", "invoice-42", "second")
    give("export", "--format", "markdown", "second", "-o", "second.md")
    assert "Mail 2 for cleo@example.com" in (folder.path / "second.md").read_text()
    give("verify")
