"""Check the models of the protocol of buckets with spin, and that they find the bugs that are seeded.

python -m scripts.bucket_model    needs spin and gcc
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

MODELS = Path(__file__).parents[1] / "docs" / "model"


class Case(NamedTuple):
    """A model with options, and whether the checker must find an error."""

    model: str
    options: tuple[str, ...] = ()
    is_bug: bool = True


CASES = [
    Case("append", is_bug=False),
    Case("append", ("WORKERS=3", "ATTEMPTS=2"), is_bug=False),
    *(Case("append", (bug,)) for bug in ("IGNORED", "NO_NONCE", "NO_FENCE")),
    Case("clean", is_bug=False),
    *(Case("clean", (bug,)) for bug in ("EAGER", "TRUSTING", "LATE", "SURE")),
    Case("act", is_bug=False),
    Case("act", ("THREADS=3", "ATTEMPTS=2"), is_bug=False),
    *(Case("act", (bug,)) for bug in ("NO_INTERRUPT", "REREAD", "BLIND")),
    Case("fork", is_bug=False),
    *(Case("fork", (bug,)) for bug in ("NO_INTERRUPT", "SKIP", "UNNAMED")),
    Case("hint", is_bug=False),
    Case("hint", ("POLLERS=2", "TURNS=1", "ATTEMPTS=2"), is_bug=False),
    *(Case("hint", (bug,)) for bug in ("AFTER", "UNNUMBERED", "GAP", "FIRST")),
]


class Checked(NamedTuple):
    """The result of a check: how many states were visited, and the assertion that does not hold, if there is one."""

    states: int
    error: str


def check(case: Case) -> Checked:
    """Visit all states of a model."""
    with tempfile.TemporaryDirectory() as folder:
        options = [f"-D{option}" for option in case.options]
        _run(folder, "spin", *options, "-a", str(MODELS / f"{case.model}.pml"))
        _run(folder, "gcc", "-O2", "-w", "-DSAFETY", "-o", "pan", "pan.c")
        text = _run(folder, "./pan", "-m1000000")
    errors, states = re.search(r"errors: (\d+)", text), re.search(r"(\d+) states, stored", text)
    if errors is None or states is None or "max search depth too small" in text or "out of memory" in text:
        raise RuntimeError(text)
    found = re.search(r"assertion violated (.*) \(at depth", text)
    return Checked(int(states[1]), (found[1] if found else "another error") if int(errors[1]) else "")


def _run(folder: str, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stdout}{done.stderr}")
    return done.stdout


def main() -> int:
    wrong = 0
    for case in CASES:
        found = check(case)
        is_right = bool(found.error) == case.is_bug
        wrong += not is_right
        result = f"finds {found.error:.60}" if found.error else "holds"
        name = " ".join((case.model, *case.options))
        sys.stdout.write(f"{'' if is_right else 'WRONG: '}{name}: {result} ({found.states:,} states)\n")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
