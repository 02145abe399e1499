"""Long conversations: an import takes time in proportion to their length, although every state has all messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.importers import import_from
from holdfast.redaction import api_keys
from tests.importers.claude_source import SESSION, Transcript, said
from tests.importers.openai_agents_source import add_items, connect
from tests.selection import tries

SHORT, TIMES = tries(250, 120), 4
WORDS = "with some words in it, as people and models write them " * 4


def transcript(folder: Path, turns: int) -> Path:
    talk = Transcript()
    for number in range(turns):
        talk.prompt(f"prompt {number} {WORDS}")
        talk.reply(said(f"reply {number} {WORDS}"))
    return talk.write(folder / f"{SESSION}.jsonl")


def session(folder: Path, turns: int) -> Path:
    folder.mkdir()
    with closing(connect(folder / "sessions.db")) as connection:
        add_items(connection, SESSION, [{"role": "user", "content": f"{n} {WORDS}"} for n in range(2 * turns)], 1)
        connection.commit()
    return folder / "sessions.db"


def with_sub_agents(folder: Path, turns: int) -> Path:
    """A session with many sub-agents in its own file, as older versions wrote them."""
    talk = Transcript()
    talk.prompt(f"prompt {WORDS}")
    for number in range(turns // 2):
        side = Transcript(prefix=f"s{number}-", agent=f"agent{number}")
        side.prompt(f"task {number} {WORDS}")
        side.reply(said(f"result {number} {WORDS}"))
        talk.lines += side.lines
    return talk.write(folder / f"{SESSION}.jsonl")


def seconds(hf: Holdfast, kind: str, path: Path, *, dry_run: bool) -> float:
    """The processor time of an import of this process."""
    start = time.process_time()
    assert import_from(hf, kind, str(path), dry_run=dry_run).ok
    return time.process_time() - start


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("kind", "write"),
    [
        ("claude-transcript", transcript),
        ("claude-transcript", with_sub_agents),
        ("openai-agents-sqlite", session),
    ],
)
def test_a_long_conversation_takes_time_in_proportion(
    tmp_path: Path, kind: str, write: Callable[[Path, int], Path], dry_run: bool
) -> None:
    """Work that grows with the square of the length would take 16 times as long for 4 times as many messages."""
    sources = [write(tmp_path / "short", SHORT), write(tmp_path / "long", TIMES * SHORT)]

    def ratio(number: int) -> float:
        found: list[float] = []
        for source in sources:
            place = tmp_path / f"{source.parent.name}-{number}.db"
            with holdfast.open(place, durability="off", redact=api_keys) as hf:
                found.append(seconds(hf, kind, source, dry_run=dry_run))
                assert dry_run or sum(info.count for info in hf.threads()) >= SHORT
        return found[1] / found[0]

    # One of three attempts is enough: other programs on the machine can only make it worse.
    assert any(ratio(number) < 2 * TIMES for number in range(3))
