"""docs/defects.md, from the list of defects and the tests that are there: `python -m tests.parity.defects_table`."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Final

import msgspec

FOLDER: Final = Path(__file__).resolve().parent
ROOT: Final = FOLDER.parent.parent
PAGE: Final = ROOT / "docs" / "defects.md"

COUNTS: Final = {"A": 18, "B": 8, "C": 11, "D": 7, "E": 14, "F": 11, "G": 10, "H": 9}
FILES: Final = {
    "A": "tests/parity/test_defects.py",
    "B": "tests/parity/test_defects_latest.py",
    "C": "tests/parity/test_defects_names.py",
    "D": "tests/parity/test_defects_writers.py",
    "E": "tests/parity/test_defects_meaning.py",
    "F": "tests/parity/test_defects_history.py",
    "G": "tests/parity/test_defects_format.py",
    "H": "tests/parity/test_defects_cost.py",
}
_TITLES: Final = {
    "A": "Losing or corrupting data on a crash",
    "B": "A wrong answer to “which is the latest”",
    "C": "Identity, names, isolation",
    "D": "Several at once",
    "E": "A checkpoint from which an agent cannot go on",
    "F": "What is done with history",
    "G": "Integrity and format",
    "H": "Cost",
}
_BAR: Final = "\\|"  # one that ends no cell, in code too
_TEST: Final = re.compile(r"test_([a-h]\d+)_\w+")
_HEAD: Final = """\
# Defects

Earlier checkpoint systems for agents have defects in common. This page lists those that were found by reading and
measuring some of them, 88 in all, says what Holdfast does instead, and names the tests that hold it to that. A small
test for each number is in `tests/parity/`, written against the public interface, on every kind of store where it
applies; what stands below it in the last column proves more.

The page is generated from `tests/parity/defects.toml` and the tests (`python -m tests.parity.defects_table`), and a
test holds it to that.
"""


class Defect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One number: the defect, what Holdfast does instead, tests that prove more, or why it does not apply."""

    defect: str
    holdfast: str
    deeper: tuple[str, ...] = ()
    not_here: str | None = None


DEFECTS: Final = msgspec.convert(
    tomllib.loads((FOLDER / "defects.toml").read_text("utf-8")), type=dict[str, Defect], strict=True
)


def tests() -> dict[str, list[tuple[str, str]]]:
    """For each number its tests: file and name, in the order of the file."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(FOLDER.glob("test_defects*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            named = _TEST.fullmatch(node.name) if isinstance(node, ast.FunctionDef) else None
            if named is not None:
                found.setdefault(named[1].upper(), []).append((path.relative_to(ROOT).as_posix(), named[0]))
    return found


def render() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(_section(group) for group in COUNTS)])


def _section(group: str) -> str:
    lines = [f"## {group}. {_TITLES[group]}", "", f"In `{FILES[group]}`.", ""]
    lines += ["| | the defect | what Holdfast does | held by |", "|---|---|---|---|"]
    named = tests()
    for number, defect in DEFECTS.items():
        if number[0] == group:
            held = [f"`{name}`" for _, name in named.get(number, ())] + [f"`{test}`" for test in defect.deeper]
            held += [f"does not apply: {defect.not_here}"] if defect.not_here else []
            cells = [number, defect.defect, defect.holdfast, "<br>".join(held)]
            lines.append(f"| {' | '.join(cell.replace('|', _BAR) for cell in cells)} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Write the page; 1, and nothing written, if a number has neither a test nor a reason."""
    bare = [number for number, defect in DEFECTS.items() if number not in tests() and not defect.not_here]
    if bare:
        sys.stderr.write(f"no test and no reason: {', '.join(bare)}\n")
        return 1
    PAGE.write_text(render(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
