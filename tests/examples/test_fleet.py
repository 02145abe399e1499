"""The fleet, smaller: workers are killed and stopped, the server crashes, and every effect happens exactly once.

The judge of that is tested here too: one that finds nothing would pass everything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from examples.fleet.chaos import Crash
from examples.fleet.judge import Verdict
from examples.fleet.ledger import Event, Ledger, Note
from examples.fleet.orders import items_of, price_of, result_of, script_of, task_of, thread_of
from tests.examples.serving import EXAMPLES
from tests.selection import tries
from tests.waiting import DEADLINE

ORDER = 1
RUNS = tries(40, 24)
SMALL = (
    "--runs",
    f"{RUNS}",
    "--workers",
    "3",
    "--concurrency",
    "3",
    "--kills",
    "4",
    "--restarts",
    "1",
    "--lease",
    "1.5",
)
SEED = "7"


@pytest.fixture(scope="module")
def fleet() -> str:
    """What the example prints."""
    arguments = [*SMALL, "--seed", SEED, "--deadline", f"{DEADLINE}"]
    # Not in pytest's folder, which only its owner may enter: PostgreSQL does not run as root.
    with tempfile.TemporaryDirectory(prefix="holdfast-test-fleet-") as folder:
        Path(folder).chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-m", "examples.fleet", *arguments],
            cwd=EXAMPLES.parent,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=DEADLINE + 60,
            check=False,
        )
        left = list(Path(folder).iterdir())
    again = f"again: python -m examples.fleet {' '.join(arguments)}"
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{again}"
    assert left == [], "it leaves nothing behind"
    return done.stdout


def row(output: str, name: str) -> list[str]:
    """The cells of a row of the table."""
    line = next(line for line in output.splitlines() if line.startswith(f"{name}  "))
    return re.split(r" {2,}", line)[1:]


def test_every_run_is_completed_and_every_effect_happens_once(fleet: str) -> None:
    assert row(fleet, "runs submitted") == row(fleet, "runs completed") == [f"{RUNS}"]
    for name in ("reserve", "charge", "post"):
        _, needed, once, never, *_ = row(fleet, name)
        assert (needed, never) == (once, "0")
    assert fleet.endswith("Nothing was lost, and nothing was done twice.\n")


def test_what_was_given_up_is_all_that_may_not_have_happened(fleet: str) -> None:
    _, needed, once, never, again, _, given_up = row(fleet, "notify")
    assert int(needed) == int(once) + int(never)
    assert int(never) <= int(given_up)
    assert again == "0"


def test_the_crashes_were_there_and_struck_runs(fleet: str) -> None:
    times = {name: row(fleet, name)[0] for name in ("killed", "vanished", "paused")}
    assert times == {"killed": "2", "vanished": "1", "paused": "1"}
    assert int(row(fleet, "takeovers")[0]) >= 1
    if not os.environ.get("HOLDFAST_TEST_POSTGRES"):
        assert row(fleet, "server restarted")[0] == "1"
        assert int(row(fleet, "server restarted")[1]) >= 1


# -- the judge ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """What an undisturbed run of an order leaves behind."""
    made = Ledger(tmp_path)
    made.write(thread_of(ORDER), "claimed")
    for turn, calls in enumerate(script_of(ORDER)):
        for event in ("called", "heard"):
            made.write(thread_of(ORDER), event, f"model {turn}")
        for call in calls:
            made.write(thread_of(ORDER), "called", call.name, key=call.name)
            if call.tool != "look_up":
                made.write(thread_of(ORDER), "acted", call.name, key=call.name)
            made.write(thread_of(ORDER), "heard", call.name)
    made.write(thread_of(ORDER), "left", text="finished")
    return made


CHARGE = f"charge {price_of(ORDER)}"
RESERVE = f"reserve {items_of(ORDER)[0]}"


def judged(ledger: Ledger) -> list[str]:
    return Verdict(ledger, [ORDER], []).findings


def test_an_undisturbed_run_is_found_right(ledger: Ledger) -> None:
    verdict = Verdict(ledger, [ORDER], [])
    assert verdict.findings == []
    assert verdict.takeovers == 0
    assert {tally.needed - tally.once for tally in verdict.tallies.values()} == {0}


@pytest.mark.parametrize(
    ("event", "call", "key", "finding"),
    [
        ("acted", CHARGE, "", f"{CHARGE} happened 2 times"),
        ("acted", "post invoice", "", "post invoice happened 2 times"),
        ("acted", "notify shipped", "", "notify shipped happened 2 times"),
        ("acted", RESERVE, "another key", f"{RESERVE} happened 2 times"),
        ("called", RESERVE, "", f"{RESERVE} was recorded, but called again"),
        ("called", "model 2", "", "model 2 was recorded, but called again"),
        ("called", "charge 0", "", "charge 0 was called, but is not in the script"),
    ],
)
def test_what_was_done_twice_is_found(ledger: Ledger, event: Event, call: str, key: str, finding: str) -> None:
    ledger.write(thread_of(ORDER), event, call, key=key)
    assert judged(ledger) == [f"{thread_of(ORDER)}: {finding}"]


def test_the_same_key_again_is_no_second_effect(ledger: Ledger) -> None:
    ledger.write(thread_of(ORDER), "acted", RESERVE, key=RESERVE)
    assert judged(ledger) == []


def without(ledger: Ledger, tmp_path: Path, *, call: str, events: tuple[Event, ...]) -> Ledger:
    """The ledger, with some notes of a call left out."""
    (tmp_path / "less").mkdir()
    less = Ledger(tmp_path / "less")
    for note in ledger.notes(thread_of(ORDER)):
        if note.call != call or note.event not in events:
            less.write(thread_of(ORDER), note.event, note.call, key=note.key, text=note.text)
    return less


@pytest.mark.parametrize("call", [CHARGE, RESERVE, "post invoice", "notify shipped"])
def test_what_was_lost_is_found(ledger: Ledger, tmp_path: Path, call: str) -> None:
    assert judged(without(ledger, tmp_path, call=call, events=("acted",))) == [f"{thread_of(ORDER)}: {call} was lost"]


def test_a_call_that_was_given_up_is_not_lost(ledger: Ledger, tmp_path: Path) -> None:
    less = without(ledger, tmp_path, call="notify shipped", events=("acted", "heard"))
    less.write(thread_of(ORDER), "heard", "notify shipped", text="{'outcome': 'unknown'}")
    assert judged(less) == []


@pytest.mark.parametrize(("looked", "findings"), [("not done", 0), ("happened", 1), (None, 1)])
def test_a_call_is_started_again_only_if_somebody_found_it_not_done(
    ledger: Ledger, tmp_path: Path, looked: str | None, findings: int
) -> None:
    less = without(ledger, tmp_path, call=CHARGE, events=("acted", "heard"))
    if looked is not None:
        less.write(thread_of(ORDER), "looked", CHARGE, text=looked)
    for event in ("called", "acted", "heard"):
        less.write(thread_of(ORDER), event, CHARGE)
    assert judged(less) == [f"{thread_of(ORDER)}: {CHARGE} was started again without a check"][:findings]


def test_a_run_that_ended_otherwise_is_found(ledger: Ledger) -> None:
    verdict = Verdict(ledger, [ORDER], [])
    verdict.read_end(ORDER, "dead", None, None)
    verdict.read_end(ORDER, "completed", result_of(ORDER), task_of(ORDER)["messages"])
    assert verdict.findings == [
        f"{thread_of(ORDER)} is dead",
        f"{thread_of(ORDER)} is completed, but its state or result differs from the script",
    ]


class Told(Ledger):
    """A ledger of notes that a test made up."""

    def __init__(self, *notes: Note) -> None:
        self._told = list(notes)

    def notes(self, run: str) -> list[Note]:
        return self._told


def test_time_is_lost_from_the_crash_to_the_next_claim() -> None:
    told = Told(
        Note(event="claimed", pid=1, at=10.0),
        Note(event="claimed", pid=2, at=15.5),
        Note(event="left", text="finished", pid=2, at=16.0),
    )
    crashes = [Crash("killed", 12.0, 1), Crash("killed", 12.0, 3), Crash("vanished", 17.0, 2)]
    verdict = Verdict(told, [ORDER], crashes)
    assert [(loss.kind, loss.crashes, loss.seconds) for loss in verdict.losses] == [
        ("killed", 2, [3.5]),
        ("vanished", 1, []),
        ("paused", 0, []),
        ("server restarted", 0, []),
    ]
    assert verdict.takeovers == 1


def test_a_run_that_was_parked_is_not_taken_over() -> None:
    told = Told(
        Note(event="claimed", pid=1, at=10.0),
        Note(event="left", text="parked", pid=1, at=11.0),
        Note(event="claimed", pid=2, at=15.0),
        Note(event="left", text="failed: LeaseLost", pid=2, at=16.0),
        Note(event="claimed", pid=1, at=17.0),
    )
    assert Verdict(told, [ORDER], []).takeovers == 1
