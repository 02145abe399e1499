"""How the tests look at what an import of transcripts made."""

from __future__ import annotations

from pathlib import Path

from holdfast import Checkpoint, Holdfast
from holdfast.importers import Report, import_from
from tests.importers.claude_source import SESSION, Transcript

KIND = "claude-transcript"


def taken(hf: Holdfast, path: Path) -> Report:
    return import_from(hf, KIND, str(path))


def written(talk: Transcript, folder: Path) -> Path:
    return talk.write(folder / f"{talk.session}.jsonl")


def steps(hf: Holdfast, name: str = SESSION) -> dict[str, Checkpoint]:
    """The checkpoints of a thread by the ids they had, oldest first."""
    thread = hf.thread(name)
    return {origin(each): thread.load(each) for each in reversed([*thread.history()])}


def origin(checkpoint: Checkpoint) -> str:
    return str(checkpoint.metadata["$imported"]["id"])


def lineage(hf: Holdfast, name: str = SESSION) -> dict[str, str | None]:
    """The parent of each checkpoint, by the ids they had."""
    found = {each.id: each for each in hf.thread(name).history()}
    return {
        origin(each): None if each.parent is None else origin(found[each.parent]) for each in reversed(found.values())
    }


def texts(checkpoint: Checkpoint) -> list[str]:
    """What was said up to a checkpoint, in short."""
    found: list[str] = []
    for message in checkpoint.state["messages"]:
        content = message.get("content", message.get("attachment"))
        for block in content if isinstance(content, list) else [content]:
            values = block if isinstance(block, str) else (block.get(n) for n in ("text", "thinking", "id", "content"))
            found.append(values if isinstance(values, str) else next(str(value) for value in values if value))
    return found
