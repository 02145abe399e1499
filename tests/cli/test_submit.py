"""Submit a run, wait for its result, and list schedules."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.cli.terminal import Exit
from tests.cli.given import Said, opened, said, store

__all__ = ["said", "store"]  # fixtures


def test_submit(store: Path, said: Said) -> None:
    code, out, _ = said("submit", "h", "new", "--start", '{"n": 1}')
    assert (code, out) == (Exit.OK, "'new' is queued for handler 'h'\n")
    Path("start.json").write_text('{"n": 1}')
    told = {"thread": "new", "handler": "h", "status": "queued", "priority": 0}
    assert said.json("submit", "h", "new", "--start", "@start.json") == (Exit.OK, told)
    urgent = said("submit", "h", "urgent", "--start", "{}", "--priority", "9")
    assert urgent[:2] == (Exit.OK, "'urgent' is queued for handler 'h' with priority 9\n")
    assert "queued (priority 9)" in said("threads", "urgent")[1]
    for wrong in ("101", "many"):
        code, err = said.refused("submit", "h", "other", "--start", "{}", "--priority", wrong)
        assert (code, f"--priority: '{wrong}' is not a whole number from -100 to 100" in err) == (Exit.USAGE, True)
    assert said.refused("submit", "h", "new", "--start", "{}")[0] == Exit.CONFLICT
    assert said.refused("submit", "h", "new")[0] == Exit.USAGE
    assert said.refused("submit", "h", "new", "--start", "nothing")[0] == Exit.USAGE
    assert said.refused("submit", "h", "new", "--start", "-")[0] == Exit.USAGE
    assert said.refused("submit", "h", "new", "--start", "{}", "--store", "memory:")[0] == Exit.USAGE


def test_the_result_of_a_run(store: Path, said: Said) -> None:
    with opened(store) as hf:
        hf.submit("h", "t", start={})
        code, err = said.refused("result", "t")
        assert code == Exit.CONFLICT
        assert "has no result yet. Ask again later, or pass --wait." in err
        assert said.refused("result", "t", "--wait", "0.01")[0] == Exit.CONFLICT
        hf.worker({"h": lambda run: {"paid": 7}}).run(until_idle=True)
    for words in ((), ("--wait",), ("--wait", "5s")):
        code, out, _ = said("result", "t", *words)
        assert (code, json.loads(out)) == (Exit.OK, {"paid": 7})
    assert said.json("result", "t") == (Exit.OK, {"thread": "t", "result": {"paid": 7}})
    code, err = said.refused("result", "tt")
    assert (code, "did you mean 't'?" in err) == (Exit.NOT_FOUND, True)
    assert said.refused("result", "notes")[0] == Exit.NOT_FOUND
    assert said.refused("result", "t", "--wait", "soon")[0] == Exit.USAGE


def test_schedules(store: Path, said: Said) -> None:
    assert said("schedules") == (Exit.OK, "", "no schedules\n")
    with opened(store) as hf:
        hf.schedule("nightly", "h", start={}, every=3600)
    code, out, _ = said("schedules")
    assert (code, out[:31]) == (Exit.OK, "nightly  h  every 1h  next 2026"[:31]) or out.startswith(
        "nightly  h  every 1h  next "
    )
    code, told = said.json("schedules")
    assert [(each["name"], each["handler"], each["every"]) for each in told["schedules"]] == [("nightly", "h", 3600.0)]
