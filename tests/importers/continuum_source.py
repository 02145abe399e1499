"""A storage folder as Continuum leaves it, written from the description of its format.

`python -m tests.importers.continuum_source DIR`. A checkpoint is `{session}/checkpoints/cp_{time}_{id}.json`, indented
JSON with sorted keys; `_checksum` is the SHA-256 of the same without blanks and without `_checksum` and `_version`.
Before each save `latest.json` is copied to `latest.json.backup`; after it, it is a link to the new file.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

STARTED = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)


def checkpoint(session: str, number: int, **changes: Any) -> dict[str, Any]:
    """The members of `CheckpointData`."""
    moment = STARTED + timedelta(minutes=number)
    said = {
        "checkpoint_id": f"{number:08x}",
        "session_id": session,
        "created_at": f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z",
        "trigger": "after_tool",
        "iteration": number,
        "messages": [{"role": "user", "content": f"Frage {each}: “wie?”\n"} for each in range(number + 1)],
        "tool_calls_pending": [{"id": f"call_{number}", "name": "search", "arguments": {"top_p": 0.5}}],
        "tool_results": {"call_0": {"score": 0.25, "found": ["a", "b"]}} if number else None,
        "tokens_used": 100 * (number + 1),
        "cost_estimate": 0.015625 * (number + 1),
        "resume_hint": "ask again" if number % 2 else None,
    }
    return {**said, **changes}


def written(said: Any, indent: str | None = None, level: int = 0) -> str:
    """JSON as serde_json writes it, with sorted keys; with blanks if there is an `indent`."""
    if isinstance(said, float):
        return rust_float(said)
    if not isinstance(said, dict | list):
        return json.dumps(said, ensure_ascii=False)
    opening, closing = "{}" if isinstance(said, dict) else "[]"
    parts = (
        [
            f"{json.dumps(key, ensure_ascii=False)}:{' ' if indent else ''}{written(said[key], indent, level + 1)}"
            for key in sorted(said)
        ]
        if isinstance(said, dict)
        else [written(each, indent, level + 1) for each in said]
    )
    if not parts or indent is None:
        return opening + ",".join(parts) + closing
    inner, outer = "\n" + indent * (level + 1), "\n" + indent * level
    return opening + inner + f",{inner}".join(parts) + outer + closing


def rust_float(value: float) -> str:
    """The shortest figures that give the same float: in full from 0.00001 up to 16 places, else with an exponent."""
    figures, _, exponent = f"{abs(value):.17e}".partition("e")
    for count in range(17):
        shorter = f"{abs(value):.{count}e}"
        if float(shorter) == abs(value):
            figures, _, exponent = shorter.partition("e")
            break
    sign = "-" if str(value).startswith("-") else ""
    digits, place = figures.replace(".", ""), int(exponent) + 1
    if not value:
        return f"{sign}0.0"
    if -5 < place <= 0:
        return f"{sign}0.{'0' * -place}{digits}"
    if 0 < place <= 16:
        return f"{sign}{digits[:place].ljust(place, '0')}.{digits[place:] or '0'}"
    return f"{sign}{digits[0]}{'.' + digits[1:] if digits[1:] else ''}e{place - 1}"


def sealed(said: dict[str, Any]) -> dict[str, Any]:
    """With checksum and version."""
    return {**said, "_checksum": hashlib.sha256(written(said).encode()).hexdigest(), "_version": "1.0"}


def save(storage: Path, said: dict[str, Any], *, second: str | None = None) -> Path:
    """What `CheckpointWriter::save` does, at a time of its own."""
    folder = storage / str(said["session_id"]) / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    second = second or f"{datetime.fromisoformat(said['created_at']):%Y%m%d_%H%M%S}"
    path = folder / f"cp_{second}_{said['checkpoint_id']}.json"
    latest = folder / "latest.json"
    if latest.exists():
        shutil.copy(latest, folder / "latest.json.backup")
    path.write_text(written(sealed(said), "  "), "utf-8")
    latest.unlink(missing_ok=True)
    latest.symlink_to(path.name)
    return path


def play(storage: Path, session: str, count: int = 3) -> list[Path]:
    return [save(storage, checkpoint(session, number)) for number in range(count)]


if __name__ == "__main__":
    play(Path(sys.argv[1]), "5f3a9c01")
    play(Path(sys.argv[1]), "77aa0b1c", 2)
