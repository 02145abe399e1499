"""Records of measured numbers and their bounds, and their output as text, markdown and JSON."""

from __future__ import annotations

import datetime as dt
import os
import platform
import sqlite3
from typing import Literal

import msgspec


class Number(msgspec.Struct, frozen=True, kw_only=True):
    """One number. `low` and `high` are the quartiles of its rounds, if it has rounds."""

    number: str
    what: str
    measured: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""

    @property
    def bound(self) -> str:
        match self.at_least, self.at_most:
            case None, None:
                return ""
            case None, most:
                return f"<= {most:g} {self.unit}"
            case least, None:
                return f">= {least:g} {self.unit}"
            case least, most:
                return f"{least:g} to {most:g} {self.unit}"

    @property
    def verdict(self) -> Literal["ok", "MISSED", ""]:
        """The verdict; empty if there is no bound, because the number only explains others."""
        if not self.bound:
            return ""
        low_enough = self.at_most is None or self.measured <= self.at_most
        high_enough = self.at_least is None or self.measured >= self.at_least
        return "ok" if low_enough and high_enough else "MISSED"

    @property
    def shown(self) -> str:
        return f"{figure(self.measured)} {self.unit}"

    @property
    def spread(self) -> str:
        return "" if self.low is None or self.high is None else f"{figure(self.low)} to {figure(self.high)}"


class Row(msgspec.Struct, frozen=True):
    """One way to store the same run."""

    way: str
    written: int
    size: int


class Machine(msgspec.Struct, frozen=True):
    """The machine, in general terms, and how busy it was at the end: its load average over a minute."""

    cores: int
    system: str
    python: str
    sqlite: str
    date: str
    load: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one execution."""

    machine: Machine
    quick: bool
    seconds: float
    numbers: list[Number]
    versus: list[Row]
    failed: list[str]


def machine() -> Machine:
    return Machine(
        cores=os.cpu_count() or 1,
        system=platform.system(),
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        load=round(os.getloadavg()[0], 1),
    )


def figure(value: float) -> str:
    """Format a number with three significant digits, without an exponent."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 or not size else 3}f}"


_HEAD = ("number", "what", "bound", "measured", "quartiles", "")
_VERSUS_HEAD = ("every save stores", "bytes written", "file at the end", "times Holdfast")


def as_text(report: Report) -> str:
    """Tables for a terminal."""
    parts = [_columns([_HEAD, *_cells(report)])]
    notes = [f"{number.number}: {number.note}" for number in report.numbers if number.note]
    if notes:
        parts.append("\n".join(notes))
    if report.versus:
        parts.append(_columns([_VERSUS_HEAD, *_versus_cells(report)]))
    parts.append(_closing(report))
    return "\n\n".join(parts) + "\n"


def as_markdown(report: Report, *, title: str = "The engine in numbers", module: str = "bench.engine") -> str:
    """The same as a markdown page."""
    parts = [f"# {title}", f"Written by `python -m {module}`.", _table([_HEAD, *_cells(report)])]
    notes = [f"* {number.number}: {number.note}" for number in report.numbers if number.note]
    if notes:
        parts.append("\n".join(notes))
    if report.versus:
        parts += ["## Versus full copies", _table([_VERSUS_HEAD, *_versus_cells(report)])]
    parts.append(_closing(report))
    return "\n\n".join(parts) + "\n"


def as_json(report: Report) -> bytes:
    """The same for programs, each number with its verdict."""
    plain = msgspec.to_builtins(report)
    for number, shown in zip(report.numbers, plain["numbers"], strict=True):
        shown["verdict"] = number.verdict
    return msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"


def _cells(report: Report) -> list[tuple[str, ...]]:
    return [(n.number, n.what, n.bound, n.shown, n.spread, n.verdict) for n in report.numbers]


def _versus_cells(report: Report) -> list[tuple[str, ...]]:
    own = report.versus[-1]
    return [
        (
            row.way,
            f"{row.written:,}",
            f"{row.size:,}",
            f"{figure(row.written / own.written)} x written, {figure(row.size / own.size)} x kept",
        )
        for row in report.versus
    ]


def _closing(report: Report) -> str:
    where = report.machine
    missed = [number.number for number in report.numbers if number.verdict == "MISSED"]
    bounds = sum(1 for number in report.numbers if number.verdict)
    lines = [
        f"{where.cores} cores, {where.system}, Python {where.python}, SQLite {where.sqlite}; load {where.load:g}; "
        f"{where.date}, {report.seconds:.0f} s" + (" (quick: too short to mean anything)" if report.quick else ""),
        f"{bounds - len(missed)} of {bounds} bounds kept" + (f"; MISSED: {', '.join(missed)}" if missed else ""),
    ]
    lines += [f"FAILED: {name}" for name in report.failed]
    return "\n".join(lines)


def _columns(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _table(rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|---" * len(rows[0]) + "|")
    return "\n".join(lines)
