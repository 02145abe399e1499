"""Numbers 6 and 7: steps at the default policy, compared with those of DBOS, Restate and Absurd.

A step calls a model or a tool that acts, changes the state, and is closed. Peers have one kind of step for both, so
each is measured once per round. They keep the state in a variable, and compute it again from the results of the steps.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bench.report import Number
from bench.runs_plan import ABSURD, DBOS, HOLDFAST, RESTATE, Plan, has_absurd, has_dbos, restate_server
from bench.timing import interleaved, ratio, spread

SQLITE: Final = "SQLite"
POSTGRES: Final = "PostgreSQL"
KINDS: Final = {
    "model": "model",
    "asking": "irreversible tool (asks)",
    "probing": "irreversible tool (probes)",
    "idempotent": "idempotent tool",
}


class Side(NamedTuple):
    """One system on one store. `kind` is what Holdfast's steps call."""

    module: str
    store: str = ""
    kind: str = "acting"


OWN: Final = [Side(HOLDFAST, store, kind) for store in (SQLITE, POSTGRES) for kind in KINDS]
# The peers to compare each store with, by the letter that their numbers end with.
PEERS: Final = {
    SQLITE: {"D": (Side(DBOS, SQLITE), "DBOS"), "R": (Side(RESTATE), "Restate")},
    POSTGRES: {"D": (Side(DBOS, POSTGRES), "DBOS"), "A": (Side(ABSURD, POSTGRES), "Absurd")},
}


def measure_one(plan: Plan) -> list[Number]:
    """Number 6: steps per second of one run."""
    return _measure(plan, "6", "one run", 1, plan.sizes.peer_steps, 0.8)


def measure_many(plan: Plan) -> list[Number]:
    """Number 7: steps per second of concurrent runs."""
    runs = plan.sizes.runs
    return _measure(plan, "7", f"{runs} runs side by side", runs, plan.sizes.peer_steps_each, 2.0)


def _least(side: Side, letter: str, restate: float) -> float | None:
    """The bound. `restate` is the one for a step that calls a model."""
    if letter == "D" and side.kind != "model":
        return 3.0 if side.store == SQLITE else 2.0
    return restate if letter == "R" and side.kind == "model" else None


def _measure(plan: Plan, number: str, what: str, runs: int, steps: int, restate: float) -> list[Number]:
    server = None
    sides = [*OWN]
    if plan.peer is not None:
        server = restate_server(plan.peer)
        here = {"DBOS": has_dbos(plan.peer), "Restate": server is not None, "Absurd": has_absurd(plan.peer)}
        if missing := [name for name, is_here in here.items() if not is_here]:
            raise RuntimeError(f"{plan.peer} has no {', '.join(missing)}: see $(PEER)/.ready in the Makefile")
        sides += [side for peers in PEERS.values() for side, _ in peers.values()]
    settings: dict[Side, str] = {}
    failed: dict[Side, int] = dict.fromkeys(sides, 0)

    def rate(side: Side) -> float:
        where = plan.database() if side.store == POSTGRES else plan.place()
        more = [str(server)] if side.module == RESTATE else []
        found = plan.child(side.module, side.kind, where, *more, runs, steps)
        settings[side] = found["settings"]
        failed[side] += found["failed"]
        return float(found["steps"] / found["seconds"])

    rounds = interleaved(plan.sizes.peer_rounds, *(lambda side=side: rate(side) for side in sides))
    rates = dict(zip(sides, rounds, strict=True))
    numbers: list[Number] = []
    for label, own in zip("abcdefgh", OWN, strict=True):
        name = f"{own.store}, {KINDS[own.kind]}, {what}: steps/s"
        for letter, (peer, system) in PEERS[own.store].items() if plan.peer is not None else ():
            low, middle, high = ratio(rates[own], rates[peer])
            note = f"{spread(rates[own]).median:,.0f} against {spread(rates[peer]).median:,.0f} steps/s"
            if own.kind == "model":
                note += f"; {settings[peer]}"
            if failed[peer]:
                note += f"; {failed[peer]} of its {runs * plan.sizes.peer_rounds} runs failed"
            numbers.append(
                Number(
                    number=f"{number}{label}/{letter}",
                    what=f"{name} / {system}",
                    measured=middle,
                    unit="x",
                    at_least=_least(own, letter, restate),
                    low=low,
                    high=high,
                    note=note,
                )
            )
        note = f"Holdfast, {settings[own]}" if own.kind == "model" else ""
        if note and own.store == POSTGRES:
            note += f"; the server of all sides has {plan.server_settings()}"
        low, middle, high = spread(rates[own])
        numbers.append(
            Number(
                number=f"{number}{label}+",
                what=name,
                measured=middle,
                unit="steps/s",
                low=low,
                high=high,
                note=note,
            )
        )
    return numbers
