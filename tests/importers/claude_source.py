"""Transcripts of Claude Code, written from their description: `python -m tests.importers.claude_source FOLDER`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

SESSION = "5f0c1d7e-0000-4000-8000-000000000001"
BEGAN = datetime(2026, 5, 4, 9, 0, 0, tzinfo=UTC)

Members = dict[str, Any]


class Transcript:
    """A session as it is written: lines that each name the one before them, unless they are told another."""

    def __init__(self, session: str = SESSION, *, prefix: str = "", agent: str | None = None) -> None:
        self.session = session
        self.lines: list[Members] = []
        self.last: str | None = None
        self._prefix = prefix
        self._agent = agent
        self._replies = 0
        self._written = 0

    def add(self, kind: str, *, parent: str | None = "", **members: Any) -> str:
        """A line of the tree; it gives its uuid. `parent` is the line before it if it is not given."""
        self._written += 1
        uuid = f"{self._prefix}{kind}-{self._written}"
        line: Members = {
            "parentUuid": self.last if parent == "" else parent,
            "isSidechain": self._agent is not None,
            "userType": "external",
            "cwd": "/home/somebody/project",
            "sessionId": self.session,
            "version": "2.1.81",
            "gitBranch": "main",
            **({} if self._agent is None else {"agentId": self._agent}),
            "type": kind,
            "uuid": uuid,
            "timestamp": self.time(self._written),
            **members,
        }
        self.lines.append(line)
        self.last = uuid
        return uuid

    def time(self, number: int) -> str:
        return (BEGAN + timedelta(seconds=number)).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def note(self, kind: str, **members: Any) -> None:
        """A line that is no part of the tree."""
        self.lines.append({"type": kind, **members, "sessionId": self.session})

    def prompt(self, text: str, **members: Any) -> str:
        return self.add("user", message={"role": "user", "content": text}, **members)

    def reply(self, *blocks: Members, **members: Any) -> list[str]:
        """A reply of the model: a line for each block, each with what the reply has cost so far."""
        self._replies += 1
        id = f"{self._prefix}msg_{self._replies}"
        found: list[str] = []
        for number, block in enumerate(blocks, 1):
            message = {
                "id": id,
                "type": "message",
                "role": "assistant",
                "model": "claude-opus-4-6",
                "content": [block],
                "stop_reason": None,
                "usage": {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 5 * number},
            }
            found.append(self.add("assistant", message=message, requestId=f"req_{self._replies}", **members))
            members.pop("parent", None)
        return found

    def result(self, call: str, content: Any, *, parent: str) -> str:
        block = {"type": "tool_result", "tool_use_id": call, "content": content}
        return self.add(
            "user",
            parent=parent,
            message={"role": "user", "content": [block]},
            toolUseResult={"stdout": content, "interrupted": False},
            sourceToolAssistantUUID=parent,
        )

    def boundary(self, **metadata: Any) -> str:
        return self.add(
            "system",
            parent=None,
            logicalParentUuid=self.last,
            subtype="compact_boundary",
            content="Conversation compacted",
            compactMetadata={"trigger": "auto", "preTokens": 167393, **metadata},
        )

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines))
        return path


def said(text: str) -> Members:
    return {"type": "text", "text": text}


def call(id: str, name: str = "Bash", **given: Any) -> Members:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def parallel_turn(talk: Transcript) -> list[str]:
    """A prompt, a reply with two calls, whose results fan out from them, and an answer."""
    prompt = talk.prompt("Which files are there?")
    thought, one, other = talk.reply(
        {"type": "thinking", "thinking": "Two looks.", "signature": "c2ln"},
        call("toolu_1", command="ls a"),
        call("toolu_2", command="ls b"),
    )
    talk.add("progress", parent=one, data={"type": "bash_progress", "output": "…"}, toolUseID="toolu_1")
    first = talk.result("toolu_1", "a.txt", parent=one)
    second = talk.result("toolu_2", "b.txt", parent=other)
    [answer] = talk.reply(said("a.txt and b.txt."))
    return [prompt, thought, one, other, first, second, answer]


def whole() -> Transcript:
    """A session with all that there is: tools, a rewind, a compaction, notes of every kind."""
    talk = Transcript()
    talk.note("summary", summary="Files", leafUuid="somewhere-else")
    talk.note("file-history-snapshot", messageId="user-1", snapshot={"trackedFileBackups": {}}, isSnapshotUpdate=False)
    answer = parallel_turn(talk)[-1]
    talk.add("system", subtype="turn_duration", durationMs=1200, isMeta=True)
    talk.note("ai-title", aiTitle="Looking at files")
    talk.prompt("Delete them.")
    talk.reply(said("Are you sure?"))
    talk.prompt("Count them.", parent=answer)  # rewound
    talk.reply(said("Two."))
    talk.boundary()
    talk.prompt("This session is being continued: two files.", isCompactSummary=True)
    talk.prompt("And now?")
    talk.reply(said("Nothing more to do."))
    talk.note("custom-title", customTitle="Files of mine")
    return talk


def write_project(folder: Path) -> Path:
    """A folder as Claude Code keeps it: a session with a sub-agent, and one of an older version with it inside."""
    project = folder / "-home-somebody-project"
    whole().write(project / f"{SESSION}.jsonl")
    child = Transcript(prefix="c-", agent="a1b2c3d")
    child.prompt("Look for dogs.")
    child.reply(said("There are none."))
    path = child.write(project / SESSION / "subagents" / "agent-a1b2c3d.jsonl")
    path.with_suffix(".meta.json").write_text(json.dumps({"agentType": "searcher", "toolUseId": "toolu_9"}))
    older = Transcript("0ld0ld0l-0000-4000-8000-000000000002", prefix="o-")
    older.prompt("Ask somebody.")
    [asked] = older.reply(call("toolu_7", "Task", prompt="Look."))
    prompt = older.prompt("Look.", parent=None, isSidechain=True)
    [seen] = older.reply(said("I see nothing."), isSidechain=True, parent=prompt)
    assert seen
    older.result("toolu_7", "It sees nothing.", parent=asked)
    older.reply(said("Nothing."))
    older.write(project / f"{older.session}.jsonl")
    return folder


if __name__ == "__main__":
    write_project(Path(sys.argv[1]))
