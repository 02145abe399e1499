"""Numbers 1 and 3: the cost of a save, by length of the conversation and compared with a plain insert."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import holdfast
from bench.plan import Plan
from bench.report import Number
from bench.timing import Spread, interleaved, ratio, spread, timed
from bench.workload import Agent, State
from holdfast.stores.sqlite.connection import PAGE_SIZE

Durability = Literal["full", "off"]

# A short conversation grows from 10 to 30 messages, then the next starts: 20 on average.
_SHORTEST, _LONGEST = 10, 30
SHORT = (_SHORTEST + _LONGEST) // 2


class Short:
    """Saves of short conversations, each one step after the previous save."""

    def __init__(self, hf: holdfast.Holdfast) -> None:
        self._hf = hf
        self._saves = self._endless()
        self.changed = b""

    def prepare(self) -> tuple[holdfast.Thread, State]:
        """Prepare the next save; `changed` has what it adds."""
        return next(self._saves)

    def save(self) -> float:
        thread, state = self.prepare()
        return timed(thread.save, state)

    def _endless(self) -> Iterator[tuple[holdfast.Thread, State]]:
        number = 0
        while True:
            number += 1
            agent = Agent(number, _SHORTEST)
            thread = self._hf.thread(f"short-{number}")
            thread.save(agent.state)
            while len(agent.state["messages"]) < _LONGEST:
                agent.step()
                self.changed = agent.changed
                yield thread, agent.state


def measure_length(plan: Plan) -> list[Number]:
    """Number 1: the time that each stored message adds to a save."""
    store = plan.folder / "length.db"
    return [
        _slope(plan, "1a", "each stored message adds to a save (SQLite, no syncs)", store),
        _slope(plan, "1b", "each stored message adds to a save (memory)", "memory:"),
    ]


def _slope(plan: Plan, number: str, what: str, store: Path | str) -> Number:
    rounds = plan.sizes.rounds
    agent = Agent(0, plan.sizes.messages - rounds)
    with holdfast.open(store, durability="off") as hf:
        thread = hf.thread("long")
        thread.save(agent.state)
        short = Short(hf)

        def long_save() -> float:
            agent.step()
            return timed(thread.save, agent.state)

        few, many = interleaved(rounds, short.save, long_save)
    messages = plan.sizes.messages - SHORT
    slopes = spread([(b - a) / messages * 1e6 for a, b in zip(few, many, strict=True)])
    base, top = spread(few), spread(many)
    return Number(
        number=number,
        what=what,
        measured=(top.median - base.median) / messages * 1e6,
        unit="us",
        at_most=1,
        low=slopes.low,
        high=slopes.high,
        note=f"aim 0.3; a save takes {base.median * 1e6:,.0f} us at {SHORT} messages, "
        f"{top.median * 1e6:,.0f} us at {plan.sizes.messages:,}",
    )


class Bare:
    """The minimum for the same guarantee in SQLite: one row, one transaction, the settings of the store."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        for setting in (
            f"page_size = {PAGE_SIZE}",
            "auto_vacuum = INCREMENTAL",
            "journal_mode = WAL",
            f"synchronous = {durability}",
        ):
            self._connection.execute(f"PRAGMA {setting}")
        self._connection.execute("CREATE TABLE step (number INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    def insert(self, body: bytes) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO step (body) VALUES (?)", (body,))
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def measure_durable(plan: Plan) -> list[Number]:
    """Number 3: a durable save of a short conversation compared with a plain durable insert of the change."""
    durable, bare, save = _against_bare(plan, "full")
    work, bare_work, save_work = _against_bare(plan, "off")
    return [
        Number(
            number="3",
            what=f"durable save at {SHORT} messages / bare durable insert of what changed",
            measured=durable.median,
            unit="x",
            at_most=1.5,
            low=durable.low,
            high=durable.high,
            note=f"insert {_quartiles(bare)}, save {_quartiles(save)}",
        ),
        Number(
            number="3+",
            what="the same without syncs: the work alone",
            measured=work.median,
            unit="x",
            low=work.low,
            high=work.high,
            note=f"insert {_quartiles(bare_work)}, save {_quartiles(save_work)}; "
            f"a save costs {(save_work.median - bare_work.median) * 1e6:,.0f} us more",
        ),
    ]


def _quartiles(times: Spread) -> str:
    return f"{times.median * 1e6:,.0f} us ({times.low * 1e6:,.0f} to {times.high * 1e6:,.0f})"


def _against_bare(plan: Plan, durability: Durability) -> tuple[Spread, Spread, Spread]:
    folder = plan.folder / f"bare-{durability}"
    folder.mkdir()
    bare = Bare(folder / "bare.db", durability)
    saves: list[float] = []
    inserts: list[float] = []
    try:
        with holdfast.open(folder / "store.db", durability=durability) as hf:
            short = Short(hf)
            for i in range(2 * plan.sizes.rounds):
                thread, state = short.prepare()
                if i % 2:
                    saves.append(timed(thread.save, state))
                    inserts.append(timed(bare.insert, short.changed))
                else:
                    inserts.append(timed(bare.insert, short.changed))
                    saves.append(timed(thread.save, state))
    finally:
        bare.close()
    return ratio(saves, inserts), spread(inserts), spread(saves)
