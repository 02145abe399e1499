"""Session stores of agent frameworks and those of Holdfast after 500 turns: bytes on disk, processor time per turn.

.venvs/openai-agents/bin/python -m bench.adapters openai     make bench-adapters runs both, each in its environment
.venvs/claude-agent-sdk/bin/python -m bench.adapters claude

A turn reads the conversation, adds a question, and adds a tool call, its result and a reply. Processor
time is compared, because the time on the clock is mostly that of the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.text import Writer

TURNS: Final = 500
REPEATS: Final = 3

Turn = Callable[[list[Any], list[Any]], Awaitable[None]]


class Measured(NamedTuple):
    """A store after all turns."""

    milliseconds: float  # of processor time per turn
    bytes: int


def turns_of(size: str) -> Iterator[tuple[list[Any], list[Any]]]:
    """The items of each turn. `size` is for how long the texts are."""
    writer = Writer()
    question, result, reply = {"short": (60, 60, 180), "usual": (250, 900, 1200)}[size]
    for number in range(TURNS):
        writer.turn()
        call = {"type": "function_call", "call_id": f"call_{number}", "name": "search", "arguments": '{"query": "x"}'}
        output = {"type": "function_call_output", "call_id": f"call_{number}", "output": writer.prose(result)}
        content = [{"type": "output_text", "text": writer.prose(reply), "annotations": [], "logprobs": []}]
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": content}
        yield [{"role": "user", "content": writer.prose(question)}], [call, output, message]


async def made(turn: Turn, turns: list[tuple[list[Any], list[Any]]]) -> float:
    """Make the turns, and return the processor time of one in milliseconds."""
    started = time.process_time()
    for question, reply in turns:
        await turn(question, reply)
    return (time.process_time() - started) * 1000 / TURNS


# -- OpenAI Agents SDK ------------------------------------------------------------------------------------------------


def of_openai(folder: Path, *, is_ours: bool) -> tuple[Turn, Callable[[], object]]:
    os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
    from agents import SQLiteSession  # noqa: PLC0415 - in an environment of its own

    from holdfast.adapters.openai_agents import HoldfastSession  # noqa: PLC0415 - as above

    path = folder / "session.db"
    session: Any = HoldfastSession("s", path) if is_ours else SQLiteSession("s", path)

    async def turn(question: list[Any], reply: list[Any]) -> None:
        await session.get_items()
        await session.add_items(question)
        await session.add_items(reply)

    return turn, session.close


# -- Claude Agent SDK -------------------------------------------------------------------------------------------------


def of_claude(folder: Path, *, is_ours: bool) -> tuple[Turn, Callable[[], object]]:
    """The SDK has no store on disk of its own. Its CLI writes a file of JSON lines, and so does this, synced."""
    from holdfast.adapters.claude_agent_sdk import HoldfastSessionStore  # noqa: PLC0415 - as above

    if is_ours:
        store = HoldfastSessionStore(folder / "sessions.db")
        key: Any = {"project_key": "p", "session_id": "s"}

        async def turn(question: list[Any], reply: list[Any]) -> None:
            for items in (question, reply):
                await store.append(key, [_entry(item) for item in items])

        return turn, store.close
    file = (folder / "session.jsonl").open("w")

    async def write(question: list[Any], reply: list[Any]) -> None:
        for items in (question, reply):
            file.writelines(f"{json.dumps(_entry(item))}\n" for item in items)
            file.flush()
            os.fdatasync(file.fileno())

    return write, file.close


def _entry(item: Any) -> dict[str, Any]:
    ids = {name: f"{random.getrandbits(128):x}" for name in ("parentUuid", "uuid")}
    fields = {"isSidechain": False, "userType": "external", "cwd": "/work"}
    more = {"sessionId": "s", "version": "2", "type": item.get("role", "user"), "timestamp": "2026-01-01T00:00:00.000Z"}
    return {**ids, **fields, **more, "message": item}


# -- the table --------------------------------------------------------------------------------------------------------

FRAMEWORKS: Final = {
    "openai": ("OpenAI Agents SDK", "SQLiteSession", "HoldfastSession", of_openai),
    "claude": ("Claude Agent SDK", "JSON lines, synced", "HoldfastSessionStore", of_claude),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=FRAMEWORKS)
    title, own, ours, make = FRAMEWORKS[parser.parse_args().framework]
    print(f"{title}, {TURNS} turns")
    print(f"{'texts':6} {'store':22} {'bytes':>10} {'ratio':>6} {'ms per turn':>12} {'ratio':>6}")
    for size in ("short", "usual"):
        turns, found = list(turns_of(size)), dict[bool, Measured]()
        for is_ours in (False, True):
            samples = [_sample(make, turns, is_ours=is_ours) for _ in range(REPEATS)]
            found[is_ours] = Measured(statistics.median(each.milliseconds for each in samples), samples[0].bytes)
        for is_ours, name in ((False, own), (True, ours)):
            each, base = found[is_ours], found[False]
            ratios = each.bytes / base.bytes, each.milliseconds / base.milliseconds
            print(f"{size:6} {name:22} {each.bytes:10,} {ratios[0]:6.2f} {each.milliseconds:12.2f} {ratios[1]:6.2f}")


def _sample(make: Any, turns: list[Any], *, is_ours: bool) -> Measured:
    folder = Path(tempfile.mkdtemp())
    try:
        turn, close = make(folder, is_ours=is_ours)
        milliseconds = asyncio.run(made(turn, turns))
        close()
        return Measured(milliseconds, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
