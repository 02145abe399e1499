"""Sessions of the OpenAI Agents SDK, written from their description; run it as a script with a FILE.

As `SQLiteSession` and `AdvancedSQLiteSession` of openai-agents 0.24 write them.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS agent_sessions (
    session_id TEXT PRIMARY KEY,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
);
CREATE TABLE IF NOT EXISTS agent_messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL,
    message_data TEXT NOT NULL,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    FOREIGN KEY (session_id) REFERENCES agent_sessions (session_id) ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS idx_agent_messages_session_id ON agent_messages (session_id, id);
"""

STRUCTURE = """
CREATE TABLE IF NOT EXISTS message_structure (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL,
    message_id INTEGER NOT NULL,
    branch_id TEXT NOT NULL DEFAULT 'main',
    message_type TEXT NOT NULL,
    sequence_number INTEGER NOT NULL,
    user_turn_number INTEGER,
    branch_turn_number INTEGER,
    tool_name TEXT,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
);
"""

Item = dict[str, Any]

ITEMS: list[Item] = [
    {"role": "user", "content": "How warm is it in Kiel and in Łódź?"},
    {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAA"},
    {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "warmth", "arguments": '{"of":"Kiel"}'},
    {"id": "fc_2", "type": "function_call", "call_id": "call_2", "name": "warmth", "arguments": '{"of":"Łódź"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "9"},
    {"type": "function_call_output", "call_id": "call_2", "output": "4"},
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "9 and 4 degrees.", "annotations": []}],
    },
]
MORE: list[Item] = [{"role": "user", "content": "And in Ghent?"}, {"role": "assistant", "content": "11 degrees."}]
OTHERWISE: list[Item] = [{"role": "user", "content": "And in Graz?"}, {"role": "assistant", "content": "2 degrees."}]


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(SCHEMA)
    return connection


def add_items(connection: sqlite3.Connection, session: str, items: Iterable[Item], minute: int) -> list[int]:
    """What `session.add_items` does, at a minute of the clock."""
    connection.execute("INSERT OR IGNORE INTO agent_sessions (session_id) VALUES (?)", (session,))
    added: list[int] = []
    for item in items:
        cursor = connection.execute(
            "INSERT INTO agent_messages (session_id, message_data, created_at) VALUES (?, ?, ?)",
            (session, json.dumps(item), f"2026-04-02 08:{minute:02}:00"),
        )
        added.append(cursor.lastrowid or 0)
    connection.commit()
    return added


def write_sessions(path: Path, *sessions: str) -> Path:
    """Sessions that take turns in one database."""
    with closing(connect(path)) as connection:
        for minute, items in enumerate((ITEMS, MORE)):
            for session in sessions:
                add_items(connection, session, items, minute)
    return path


def write_branches(path: Path, session: str) -> Path:
    """A session with a second turn, and another second turn in a branch that was made from it."""
    with closing(connect(path)) as connection:
        connection.executescript(STRUCTURE)
        first = add_items(connection, session, ITEMS, 0)
        _structure(connection, session, "main", first, 1)
        _structure(connection, session, "main", add_items(connection, session, MORE, 1), 8)
        _structure(connection, session, "graz", first, 10)  # copied: the rows are the same
        _structure(connection, session, "graz", add_items(connection, session, OTHERWISE, 2), 17)
    return path


def _structure(connection: sqlite3.Connection, session: str, branch: str, numbers: list[int], first: int) -> None:
    connection.executemany(
        "INSERT INTO message_structure (session_id, message_id, branch_id, message_type, sequence_number)"
        " VALUES (?, ?, ?, 'other', ?)",
        [(session, number, branch, place) for place, number in enumerate(numbers, first)],
    )
    connection.commit()


if __name__ == "__main__":
    write_sessions(Path(sys.argv[1]), "support-1", "support-2")
