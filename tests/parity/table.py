"""The table of docs/parity.md, from the suites: `python -m tests.parity.table` writes it.

A row is a feature of an earlier system, and names the tests that hold Holdfast to it, or says why there is none.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.parity.covering import covered_by
from tests.parity.features import FEATURES, TITLES
from tests.parity.otherwise import NOT_HERE, OTHERWISE

FOLDER: Final = Path(__file__).resolve().parent
PAGE: Final = FOLDER.parent.parent / "docs" / "parity.md"

Covered = dict[tuple[str, str], list[str]]

_HEAD: Final = """\
# Parity with earlier systems

What four earlier checkpoint systems can do, and the tests which show that Holdfast can: each public type, field,
method and behaviour of theirs, and what their own tests assert, in our words. Holdfast has no class of theirs; a test
does what they do by the public interface.

**Otherwise** says what Holdfast has instead where it has no verb for just that: the tests show these means, and the
rest is the program's. **Not here** says why there is nothing; a test beside it shows what happens then.

The page is generated from `tests/parity/` (`python -m tests.parity.table`), and a test holds it to that.
"""


def suites() -> list[str]:
    """The modules of the suites, by name: `test_ares`, and `test_ares_…` where one file is not enough."""
    files = sorted(path.stem for system in FEATURES for path in FOLDER.glob(f"test_{system}*.py"))
    return [f"tests.parity.{name}" for name in files]


def collect() -> Covered:
    """Which tests cover a feature: (system, id) -> tests, in the order of the files."""
    covered: Covered = {}
    for name in suites():
        for test, feature in _covering(name):
            covered.setdefault(feature, []).append(test)
    return covered


def _covering(name: str) -> Iterator[tuple[str, tuple[str, str]]]:
    module = importlib.import_module(name)
    for member, value in vars(module).items():
        # A test that was imported from another suite counts there.
        if getattr(value, "__module__", None) == name:
            for feature in covered_by(value):
                yield f"{name.rpartition('.')[2]}.py::{member}", feature


def missing(covered: Covered) -> list[tuple[str, str]]:
    """Features that no test covers and that have no reason for it."""
    known = [(system, feature) for system, features in FEATURES.items() for feature, _ in features]
    return [feature for feature in known if feature not in covered and feature not in NOT_HERE]


def unknown(covered: Covered) -> list[tuple[str, str]]:
    """What tests say they cover, or reasons are given for, and no system has."""
    known = {(system, feature) for system, features in FEATURES.items() for feature, _ in features}
    return [feature for feature in (*covered, *OTHERWISE, *NOT_HERE) if feature not in known]


def render(covered: Covered) -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(_section(system, covered) for system in FEATURES)])


def _section(system: str, covered: Covered) -> str:
    lines = [f"## {TITLES[system]}", "", "| feature | what it is | held by |", "|---|---|---|"]
    for feature, text in FEATURES[system]:
        held = [f"`{test}`" for test in covered.get((system, feature), ())]
        lines.append(f"| `{feature}` | {text} | {'<br>'.join([*_reason((system, feature)), *held])} |")
    return "\n".join([*lines, ""])


def _reason(feature: tuple[str, str]) -> Iterator[str]:
    if feature in OTHERWISE:
        yield f"**otherwise**: {OTHERWISE[feature]}"
    if feature in NOT_HERE:
        yield f"**not here**: {NOT_HERE[feature]}"


def main() -> int:
    """Write the page; 1, and nothing written, where a cell would be empty or a test covers what there is not."""
    covered = collect()
    wrong = [f"no test covers {system} {feature}" for system, feature in missing(covered)]
    wrong += [
        f"no feature {feature} of {system}, which a test or a reason is for" for system, feature in unknown(covered)
    ]
    if wrong:
        sys.stderr.write("\n".join([*wrong, ""]))
        return 1
    PAGE.write_text(render(covered), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
