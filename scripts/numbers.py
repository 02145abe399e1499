"""The measured numbers in README.md and docs/, taken from bench/results and docs/trust/crash-lab.md.

python -m scripts.numbers    write the numbers of CLAIMS anew, after a benchmark or the crash lab has run

Only results with a date count: older ones were measured before the present code. Without a result, the text says "not
measured yet".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.report import figure

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "bench" / "results"
LAB: Final = ROOT / "docs" / "trust" / "crash-lab.md"


class Claim(NamedTuple):
    """A text of a page. Names in braces are keys of `measured()`."""

    page: str
    text: str


CLAIMS: Final = (
    Claim("README.md", "| **{sqlite.300.size} → {holdfast-sqlite.300.size}** | a LangGraph conversation of 300 turns"),
    Claim("README.md", "| **{faults} injected faults, 0 saves lost** |"),
    Claim("README.md", "| **{kills} kills of a run** |"),
    Claim(
        "README.md",
        "| **{runs.3.ours}** | from process start to the next new step of a killed run of 2,000 steps "
        "(DBOS: {runs.3.theirs}) |",
    ),
    Claim("README.md", "| SqliteSaver | {sqlite.300.size} | {sqlite.300.total} |"),
    Claim("README.md", "| Holdfast, SQLite | {holdfast-sqlite.300.size} | {holdfast-sqlite.300.total} |"),
    Claim("README.md", "| PostgresSaver | {postgres.300.size} | {postgres.300.total} |"),
    Claim("README.md", "| Holdfast, PostgreSQL | {holdfast-postgres.300.size} | {holdfast-postgres.300.total} |"),
)

MISSING: Final = "not measured yet"
_PLACE = re.compile(r"\{([^}]+)\}")
_NUMBER = rf"(?:{MISSING}|[\d.,]+(?: [^\s|*)]+)?)"


def measured() -> dict[str, str]:
    """Every number that a page may claim, as it is written there."""
    found: dict[str, str] = {}
    for path in sorted(RESULTS.glob("*.json")):
        report: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if "date" not in report.get("machine", {}):
            continue
        for number in report.get("numbers", ()):
            key = f"{path.stem}.{number['number']}"
            found[key] = f"{figure(number['measured'])} {number['unit']}"
            if both := re.search(r"([\d.,]+)( \S+)? against ([\d.,]+) (\S+?)(?:;|,|$)", number["note"]):
                unit = both[4]
                found[f"{key}.ours"] = f"{both[1]} {(both[2] or unit).strip()}"
                found[f"{key}.theirs"] = f"{both[3]} {unit}"
        for saver in report.get("savers", ()):
            if saver["graph"] == "plain":
                key = f"{saver['side']}.{saver['turns']}"
                found[f"{key}.size"] = f"{figure(saver['size'] / 1e6)} MB"
                found[f"{key}.total"] = f"{figure(saver['total'])} s"
    lab = LAB.read_text("utf-8")
    # Forged records are attacks on decoders, not faults of a store.
    found["faults"] = f"{_total(lab, 'all') - _total(lab, 'hostile'):,}"
    found["kills"] = f"{_total(lab, 'kill of a run'):,}"
    return found


def _total(lab: str, row: str) -> int:
    cells = re.findall(rf"^\| {row} \|.*\| ([\d,]+) \|$", lab, re.MULTILINE)
    return sum(int(cell.replace(",", "")) for cell in cells)


def rendered(claim: Claim, values: Mapping[str, str]) -> str:
    """The text of a claim with its numbers."""
    return _PLACE.sub(lambda found: values.get(found[1], MISSING), claim.text)


def rewrite(text: str, claim: Claim, values: Mapping[str, str]) -> str:
    """A page with the present numbers of a claim."""
    parts = _PLACE.split(claim.text)
    pattern = "".join(re.escape(part) if i % 2 == 0 else _NUMBER for i, part in enumerate(parts))
    return re.sub(pattern, lambda _: rendered(claim, values), text)


def main() -> None:
    values = measured()
    for name in sorted({claim.page for claim in CLAIMS}):
        path = ROOT / name
        text = path.read_text("utf-8")
        for claim in CLAIMS:
            if claim.page == name:
                text = rewrite(text, claim, values)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
