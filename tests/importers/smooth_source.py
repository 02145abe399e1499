"""Stores of Smooth's engine, written from their description: `python -m tests.importers.smooth_source FOLDER`."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

BEGAN = datetime(2026, 3, 1, 10, 0, 0, 123456, UTC)
IMAGE = "data:image/png;base64," + "iVBORw0KGgo" * 2000

SCHEMA = """
CREATE TABLE IF NOT EXISTS checkpoints (
    id TEXT PRIMARY KEY,
    agent_id TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    conversation BLOB NOT NULL,
    metadata TEXT DEFAULT '{}',
    created_at INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS idx_checkpoints_agent ON checkpoints(agent_id, created_at DESC);
"""

Checkpoint = dict[str, Any]


def rfc3339(moment: datetime) -> str:
    """As chrono writes it, to the nanosecond."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond:06}789Z"


def message(number: int, role: str, content: str, **more: Any) -> dict[str, Any]:
    at = rfc3339(BEGAN + timedelta(milliseconds=number))
    return {"id": f"m-{number}", "role": role, "content": content, **more, "timestamp": at}


def talk() -> list[dict[str, Any]]:
    """A turn with two tool calls, an image and thoughts."""
    calls = [{"id": f"call-{name}", "name": "look", "arguments": {"at": name}} for name in "ab"]
    return [
        message(0, "system", "You are careful."),
        message(1, "user", "What is in this picture?", images=[{"url": IMAGE, "detail": "low"}]),
        message(2, "assistant", "", tool_calls=calls, reasoning_content="I should look twice."),
        message(3, "tool", "a dog", tool_call_id="call-a", tool_name="look"),
        message(4, "tool", "a cat 🐈", tool_call_id="call-b", tool_name="look"),
        message(5, "assistant", "A dog and a cat."),
    ]


def checkpoints(agent: str, *, between: timedelta = timedelta(milliseconds=100)) -> list[Checkpoint]:
    """What Smooth saves of that turn: after the reply, after each result, and after the answer."""
    messages = talk()
    found: list[Checkpoint] = []
    for number, (iteration, length) in enumerate([(1, 3), (1, 4), (1, 5), (2, 6)]):
        found.append(
            {
                # Random there: neither the ids nor the files' names give the order.
                "id": str(UUID(int=(0xF000 - number) << 108 | sum(agent.encode()), version=4)),
                "agent_id": agent,
                "conversation": {"id": f"talk of {agent}", "messages": messages[:length], "max_context_tokens": 8000},
                "iteration": iteration,
                "metadata": {"phase": "execute", "number": str(number)},
                "created_at": rfc3339(BEGAN + number * between),
            }
        )
    return found


def write_files(folder: Path, *agents: str) -> Path:
    """FileCheckpointStore: `{folder}/{agent}/{id}.json`, pretty."""
    for agent in agents:
        for each in checkpoints(agent):
            path = folder / agent / f"{each['id']}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(each, indent=2, ensure_ascii=False))
    return folder


def write_sqlite(path: Path, *agents: str) -> Path:
    """SqliteCheckpointStore: the conversation as bytes of JSON, the time in whole seconds."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(SCHEMA)
        for agent in agents:
            for each in checkpoints(agent):
                insert(connection, each)
        connection.commit()
    return path


def insert(connection: sqlite3.Connection, each: Checkpoint) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO checkpoints (id, agent_id, iteration, conversation, metadata, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (
            each["id"],
            each["agent_id"],
            each["iteration"],
            json.dumps(each["conversation"]).encode(),
            json.dumps(each["metadata"]),
            int(datetime.fromisoformat(each["created_at"]).timestamp()),
        ),
    )


if __name__ == "__main__":
    given = Path(sys.argv[1])
    write_files(given / "files", "agent-1", "team/agent-2")
    write_sqlite(given / "smooth.db", "agent-1", "agent-2")
