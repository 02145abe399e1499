"""The table at the end."""

from __future__ import annotations

from examples.fleet.chaos import RESTARTED
from examples.fleet.judge import Verdict
from examples.fleet.orders import TOOLS

CLASSES: dict[str, str] = {"model": "recorded", **dict(TOOLS.items())}


def table(verdict: Verdict, *, runs: int, ended: int, is_own_server: bool) -> str:
    """The results as text. `ended` is the number of workers that ended by themselves."""
    calls: list[tuple[str, ...]] = [
        ("call", "effect", "needed", "exactly once", "never", "called again", "looked up", "given up")
    ]
    for name, tally in verdict.tallies.items():
        numbers = (tally.needed, tally.once, tally.never, tally.again, tally.looked, tally.unknown)
        calls.append((name, CLASSES[name], *(str(number) for number in numbers)))
    crashes: list[tuple[str, ...]] = [("crash", "times", "runs struck", "time lost: median", "longest")]
    for loss in verdict.losses:
        if loss.kind == RESTARTED and not is_own_server:
            crashes.append((loss.kind, "left out: the server is not our own", "", "", ""))
            continue
        lost = (f"{loss.middle:.2f} s", f"{loss.longest:.2f} s") if loss.seconds else ("", "")
        crashes.append((loss.kind, f"{loss.crashes}", f"{len(loss.seconds)}", *lost))
    figures: list[tuple[str, ...]] = [
        ("runs submitted", f"{runs}"),
        ("runs completed", f"{verdict.completed}"),
        ("takeovers", f"{verdict.takeovers}"),
        ("workers that ended by themselves", f"{ended}"),
    ]
    return "\n\n".join(_aligned(rows) for rows in (figures, calls, crashes))


def _aligned(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
