"""A subject with a secret in every place where its words can be, among threads of others, and a search for them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Holdfast, Retention, Run

PLACES = (
    *("name", "message", "edited", "pruned", "rewound", "key", "large", "binary", "label", "tag", "metadata", "hint"),
    *("reason", "agent", "model", "argument", "result", "failure", "question", "payload", "answer", "answerer", "note"),
    *("turn", "finish", "child", "metadata-key"),
)
# Lower case, and no two with a beginning in common: they lie in the files as they are, and are not compressed away.
SECRETS = {place: f"{random.Random(place).randbytes(8).hex()}-{place}" for place in PLACES}
SUBJECT = f"people/{SECRETS['name']}"
CHILD = f"{SUBJECT}/helper~1"  # of the thread after it was rewound once
OTHERS = tuple(f"others/{number}" for number in range(3))
SHARED = f"a text that two have: {random.Random(1).randbytes(20_000).hex()}"


@holdfast.tool(effect="idempotent")
def act(word: str) -> str:
    if word == "fail":
        raise ValueError(SECRETS["failure"])
    return SECRETS["result"]


def plant(hf: Holdfast) -> None:
    """Make the subject and the others, their saves in turns: they lie beside each other in the files."""
    threads = [hf.thread(name) for name in (SUBJECT, *OTHERS)]
    for step in range(12):
        for thread in threads:
            thread.save(_state(thread.name, step), **(_said(step) if thread.name == SUBJECT else {}))
    subject = threads[0]
    subject.save({"messages": [SECRETS["rewound"]]})
    subject.rewind("@-2")
    subject.prune(Retention(keep_last=3, keep_labelled=False))
    _run(hf)
    hf.optimize()
    subject.latest()
    subject.save(_state(SUBJECT, 13) | {"shared": SHARED})
    threads[1].latest()
    threads[1].save(_state(OTHERS[0], 13) | {"shared": SHARED})


def _state(name: str, step: int) -> dict[str, Any]:
    messages: list[Any] = [
        {"role": "user", "content": f"{_nick(name)}: message {number}"} for number in range(3 * step)
    ]
    state: dict[str, Any] = {"messages": messages, "edited": f"by {_nick(name)} in step {step}"}
    if name == SUBJECT:
        messages.insert(1, {"content": f"I am {SECRETS['message']}", SECRETS["key"]: 1})
        state["edited"] = SECRETS["edited"] if step % 2 else "not now"
        state["large"] = SECRETS["large"] + " and more" * 4000
        state["binary"] = SECRETS["binary"].encode() + bytes(20_000)
        if step < 3:
            state["pruned"] = SECRETS["pruned"]
    return state


def _nick(name: str) -> str:
    return "somebody" if name == SUBJECT else name


def _said(step: int) -> dict[str, Any]:
    return {
        "label": f"{SECRETS['label']} {step}",
        "tags": [SECRETS["tag"]],
        "metadata": {"user": SECRETS["metadata"], SECRETS["metadata-key"]: step},
        "resume_hint": SECRETS["hint"],
        "reason": SECRETS["reason"],
        "agent": SECRETS["agent"],
    }


def _run(hf: Holdfast) -> None:
    ends: list[str] = []
    for _ in range(2):
        with hf.run(SUBJECT, tools=[act], turn=SECRETS["turn"], agent=SECRETS["agent"]) as run:
            _work(run)
        ends.append(run.status)
        if run.status == "waiting":
            hf.answer(SUBJECT, SECRETS["question"], {"yes": SECRETS["answer"]}, by=SECRETS["answerer"])
    assert ends == ["waiting", "completed"]


def _work(run: Run) -> None:
    run.model(lambda: {"reply": SECRETS["model"]})
    run.tool("act", {"word": SECRETS["argument"]})
    try:
        run.tool("act", {"word": "fail"})
    except ValueError:
        run.progress(1, 2, SECRETS["note"])
    with run.child("helper", start={"task": SECRETS["child"]}) as child:
        if child.status == "running":
            child.finish(SECRETS["child"])
    run.wait(SECRETS["question"], {"about": SECRETS["payload"]})
    run.finish(SECRETS["finish"])


def states(hf: Holdfast, *names: str) -> dict[str, list[Any]]:
    """All that others have, or these threads."""
    return {name: [hf.thread(name).load(each).state for each in hf.thread(name).history()] for name in names or OTHERS}


def found_in(folder: Path, *secrets: str) -> set[str]:
    """The places whose secrets are in a file below a folder, or in the name of one; or which of these texts are."""
    wanted = {text: text for text in secrets} or SECRETS
    files = [(str(path).encode(), path.read_bytes() if path.is_file() else b"") for path in folder.rglob("*")]
    return {place for place, text in wanted.items() if any(text.encode() in each for pair in files for each in pair)}


def pieces_of(folder: Path) -> Iterator[bytes]:
    """The bytes of all files below a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.read_bytes()
