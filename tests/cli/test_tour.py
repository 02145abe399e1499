"""The tour of a new user on the command line: work, a doubt, a decision, a fork, what differs, and a transcript."""

from __future__ import annotations

import json

from tests.cli.conftest import Folder

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


def test_the_tour(folder: Folder) -> None:
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
