"""A store to look at, and commands given to look at it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Run
from holdfast.cli.main import main

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x9b2J\u202egnp\r\x00"
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")

Say = Callable[..., tuple[int, str, str]]


def without_store(err: str) -> str:
    """Messages without the line that names the store, which tests of `location` look at."""
    return re.sub(r"^using .* \(.*\)\n", "", err, flags=re.MULTILINE)


@holdfast.tool(effect="irreversible", in_doubt="ask", identity=("letter",))
def post(letter: str) -> str:
    raise TimeoutError("no answer")


def agent(run: Run) -> None:
    for step in run.steps():
        messages = run.state["messages"]
        call = {"id": "call_0", "name": "look_up", "args": {"item": "ink"}}
        messages.append(run.model(reply, step, call))
        messages.append({"role": "tool", "id": "call_0", "content": run.tool(look_up, call["args"], key="call_0")})
        if step == 2:
            run.tool(post, {"letter": "Dear Sir"})


def reply(step: int, call: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": f"turn {step}", "calls": [call]}


@holdfast.tool(effect="read")
def look_up(item: str) -> int:
    return len(item)


def fill(hf: Holdfast) -> None:
    """A thread that was rewound and forked, a run in doubt, one that asks, one that is done, and hostile names."""
    notes = hf.thread("notes")
    for number in range(3):
        notes.save({"n": number}, label="good" if number == 1 else None, tags=["t"] if number == 2 else [])
    notes.rewind("@2")
    notes.save({"n": 10, "text": "new"})
    notes.fork("notes-fork", at="@good")
    with hf.run("shop", start={"messages": [{"role": "user", "content": "go"}]}, agent="clerk") as run:
        agent(run)
    with hf.run("invoice", start={}) as run:
        run.wait("approve", {"amount": 3})
    with hf.run("done", start={}) as run:
        run.finish(1)
    asking = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": HOSTILE}, {"type": "odd", HOSTILE: [HOSTILE]}],
        "tool_calls": [
            {"id": HOSTILE, "name": HOSTILE, "args": {HOSTILE: HOSTILE}},
            {"id": "1", "name": "t", "args": [HOSTILE]},
        ],
    }
    hf.thread(f"evil {HOSTILE}").save(
        {
            "messages": [{"role": f"user{HOSTILE}", "content": HOSTILE}, asking, HOSTILE],
            f"key{HOSTILE}": {HOSTILE: HOSTILE},
        },
        label=f"label{HOSTILE.replace(chr(0), '')}",
        tags=[f"tag{HOSTILE}"],
        reason=HOSTILE,
        agent=HOSTILE,
    )


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        fill(hf)
    for name in ("HOLDFAST_KEY", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_STORE", str(path))
    monkeypatch.setenv("COLUMNS", "80")
    later = max(info.updated_at.timestamp() for info in infos(path)) + 90
    monkeypatch.setattr("holdfast.text.now", lambda: later)
    return path


def infos(path: Path) -> list[holdfast.types.ThreadInfo]:
    with holdfast.open(path, durability="off") as hf:
        return list(hf.threads())


@pytest.fixture
def say(store: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    def give(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        out, err = capsys.readouterr()
        err = without_store(err)
        assert "Traceback" not in out + err
        assert not OBEYED.search(out + err), f"{words} wrote what a terminal obeys"
        return code, out, err

    return give


def golden(out: str) -> str:
    """Output without what differs each time: ids but for their ends, moments, and how long things took."""
    out = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{4}([0-9a-f]{8})", r"ID-\1", out)
    out = re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d UTC)?", "MOMENT", out)
    return re.sub(r"(<1|\d+)ms", "TIME", out)


VERBS = (
    ("threads",),
    ("log", "shop"),
    ("show", "shop"),
    ("diff", "notes"),
    ("effects", "shop"),
    ("inbox", "--stuck-after", "0s"),
    ("acts",),
    ("schedules",),
    ("stats",),
    ("doctor",),
)
