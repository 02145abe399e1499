"""Numbers 1 to 3: a run compared with the same run in DBOS. The two take turns, each in its own process."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from bench.report import Number
from bench.runs_plan import Plan
from bench.timing import interleaved, ratio, spread


def measure_one(plan: Plan) -> list[Number]:
    """Number 1: steps per second of one run."""
    steps = plan.sizes.steps
    versions: set[str] = set()

    def rate(side: str) -> float:
        found = plan.child(side, "one", plan.place(), steps)
        versions.update({found["version"]} if "version" in found else ())
        return float(steps / found["seconds"])

    rates = _rounds(plan, plan.sizes.rounds, rate)
    what = f"one run of {steps:,} steps"
    return _rates("1", what, 4, rates, f"DBOS {', '.join(versions)}; " if versions else "")


def measure_many(plan: Plan) -> list[Number]:
    """Number 2: steps per second of concurrent runs."""
    runs, steps = plan.sizes.runs, plan.sizes.steps_each

    failed = 0

    def rate(side: str) -> float:
        nonlocal failed
        found = plan.child(side, "many", plan.place(), runs, steps)
        failed += found["failed"]
        return float(found["steps"] / found["seconds"])

    rates = _rounds(plan, plan.sizes.crowd_rounds, rate)
    note = f"{failed} of DBOS's {runs * plan.sizes.crowd_rounds} runs failed, waiting for a connection; "
    return _rates("2", f"{runs} runs side by side", 8, rates, note if failed else "")


def measure_restart(plan: Plan) -> list[Number]:
    """Number 3: from the start of a process to the first new step of a run that was killed half-way."""
    steps = plan.sizes.long
    left = {}
    for side in plan.sides:
        left[side] = plan.place()
        plan.killed_child(side, "killed", left[side], steps)

    def seconds(side: str) -> float:
        place = plan.place()
        # A store left by a killed process. Each round has its own, because a resume changes it.
        shutil.copytree(left[side], place, dirs_exist_ok=True)
        return float(plan.child(side, "restarted", place, steps)["seconds"])

    for side in plan.sides:
        seconds(side)  # writes the byte code
    own, *others = _rounds(plan, plan.sizes.restarts, seconds)
    what = f"a run of {steps:,} steps, killed half-way, from process start to its first new step"
    numbers = []
    for other in others:
        low, middle, high = ratio(own, other)
        note = f"{spread(own).median:.3f} s against {spread(other).median:.3f} s"
        numbers.append(
            Number(
                number="3",
                what=f"{what} / DBOS",
                measured=middle,
                unit="x",
                at_most=round(1 / 3, 3),
                low=low,
                high=high,
                note=note,
            )
        )
    low, middle, high = spread([value * 1e3 for value in own])
    return [*numbers, Number(number="3+", what=what, measured=middle, unit="ms", low=low, high=high)]


def _rounds(plan: Plan, rounds: int, action: Callable[[str], float]) -> list[list[float]]:
    return interleaved(rounds, *(lambda side=side: action(side) for side in plan.sides))


def _rates(number: str, what: str, least: float, rates: list[list[float]], note: str) -> list[Number]:
    own, *others = rates
    numbers = []
    for other in others:
        low, middle, high = ratio(own, other)
        note += f"{spread(own).median:,.0f} against {spread(other).median:,.0f} steps/s"
        numbers.append(
            Number(
                number=number,
                what=f"{what}: steps/s / DBOS",
                measured=middle,
                unit="x",
                at_least=least,
                low=low,
                high=high,
                note=note,
            )
        )
    low, middle, high = spread(own)
    return [
        *numbers,
        Number(number=f"{number}+", what=f"{what}: steps/s", measured=middle, unit="steps/s", low=low, high=high),
    ]
