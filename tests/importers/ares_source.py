"""A folder as ares-server leaves it, written from the description of its format.

`python -m tests.importers.ares_source DIR`. Each checkpoint is a file of indented JSON, `{session}_{step}.json`,
written in place; then `{session}_latest.json` gets the name of that file as its whole content.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

STARTED = 1_700_000_000


def checkpoint(session: str, step: int, **changes: Any) -> dict[str, Any]:
    """A checkpoint as serde writes it: members in the order of the struct, an enum as a text or an object."""
    said = {
        "id": f"{session}-{step}",
        "agent_name": "researcher",
        "session_id": session,
        "step": step,
        "messages": [message for each in range(step + 1) for message in _turn(each)],
        "tool_calls": [
            {"tool_name": "search", "arguments": f"query {each}", "result": f"found {each}", "success": True}
            for each in range(step)
        ],
        "partial_results": [f"part {each}" for each in range(step)],
        "timestamp": STARTED + 60 * step,
        "status": "InProgress",
    }
    return {**said, **changes}


def _turn(number: int) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": f"Question {number}: wie geht es, ☃?"},
        {"role": "assistant", "content": f"Answer {number}"},
    ]


def save(folder: Path, said: dict[str, Any]) -> Path:
    """What `CheckpointManager::save` does."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{said['session_id']}_{said['step']}.json"
    path.write_text(json.dumps(said, indent=2, ensure_ascii=False), "utf-8")
    (folder / f"{said['session_id']}_latest.json").write_text(path.name, "utf-8")
    return path


def play(folder: Path, session: str, steps: int = 3) -> None:
    """A session that ended well."""
    for step in range(steps):
        save(folder, checkpoint(session, step, status="Completed" if step == steps - 1 else "InProgress"))


if __name__ == "__main__":
    play(Path(sys.argv[1]), "sess1")
    play(Path(sys.argv[1]), "sess1_2", 2)
