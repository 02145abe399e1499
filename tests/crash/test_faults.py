"""System calls that fail: once, and from then on. Errors are typed, nothing acknowledged is lost, the store goes on.

What the worker holds by itself: nothing but `StoreError`s comes out of a handle; after an unknown outcome it refuses
everything, and another handle says what became of the checkpoint in question. The judge does the rest.

`make test` takes a share of the calls, HOLDFAST_LAB=full more; HOLDFAST_LAB_POINT=fsync/12+ makes the twelfth fsync
fail and all after it, HOLDFAST_LAB_POINT=fsync/12 that one alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from tests.covers import covers
from tests.crash import ledger
from tests.crash.lab import FULL, POINT, Lab, opened_lab, repeated_by, spread
from tests.crash.tracing import READING, WRITING, Fault
from tests.crash.workload import SCRIPT, Job, Kind, Task
from tests.selection import in_full

MORE = 20  # calls that a workload may make beyond those of the first
LEASE = 0.5  # seconds: for so long a run tries to record what it was told
LARGEST: dict[Kind, int] = {"sqlite": 600_000, "directory": 120_000}  # bytes; files grow to about half of it


SYNCS = ("fsync", "fdatasync")
ONE_COMMIT = ("save", "rewind", "fork", "edited fork")
AFTERWARDS = ("NotFound", "Conflict", "AlreadyExists")  # of verbs that build on what failed


class Kinds(NamedTuple):
    """Calls, how they fail, and how many of them: of each name in the lab, of all together in `make test`."""

    what: str
    calls: Sequence[str]
    traced: Sequence[str] = WRITING
    is_lasting: bool = True
    in_the_lab: int = 60
    share: int = 2


_SPACE = ("write", "pwrite64", "ftruncate", "mkdir", "mkdirat", "rename", "renameat", "renameat2", "openat")
_ENTRIES = ("openat", "mkdir", "mkdirat", "rename", "renameat", "renameat2", "unlink", "unlinkat")
FAULTS = {
    "EIO": Kinds("error=EIO", [call.strip("?") for call in WRITING]),
    "ENOSPC": Kinds("error=ENOSPC", _SPACE, (*WRITING, "openat")),
    "EDQUOT": Kinds("error=EDQUOT", ("write", "pwrite64"), in_the_lab=10, share=1),
    "EROFS": Kinds("error=EROFS", _ENTRIES, (*WRITING, "openat"), in_the_lab=20, share=1),
    # For ever it cannot be: whoever is interrupted tries again.
    "EINTR": Kinds("error=EINTR", ("write", "pwrite64", "fsync", "fdatasync", "ftruncate"), is_lasting=False, share=1),
    # A write that took nothing of what it was given.
    "nothing": Kinds("retval=0", ("write", "pwrite64"), in_the_lab=40, share=1),
    "EMFILE": Kinds("error=EMFILE", ("openat",), ("openat",)),
    "unreadable": Kinds("error=EIO", [call.strip("?") for call in READING], READING),
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with opened_lab() as lab:
        yield lab


@covers("A8", "A18", "ares/io::Error")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_calls_that_fail(lab: Lab, kind: Kind, fault: str) -> None:
    kinds = FAULTS[fault]
    struck: Counter[str] = Counter()
    unstruck: list[str] = []
    for name, when in points(lab, kind, kinds):
        with repeated_by(f"{name}/{when}"):
            traced = lab.attempt(kind, "verbs", kinds.traced, Fault(name, when, kinds.what), Task("", lease=LEASE))
            assert traced is None or name not in SYNCS or is_poisoned(traced.lines), f"it goes on: {traced.lines}"
        if traced is not None and traced.struck is None:
            unstruck.append(f"{name}/{when}")
        elif traced is not None:
            struck[f"{fault}, {'lasting' if '+' in when else 'once'}"] += 1
    ledger.note("a system call that fails", kind, **struck)
    assert struck, f"nothing was struck; not {unstruck}"
    assert len(unstruck) <= MORE, f"not struck: {unstruck}"


def is_poisoned(said: list[str]) -> bool:
    """Whether every save whose sync failed has an unknown outcome: nothing less keeps a handle from going on.

    What is made anew, by an optimize or by opening the store, is not used if it cannot be synced, so that is known.
    """
    saves = {str(verb.counter) for verb in SCRIPT if isinstance(verb, Job) or verb.kind in ONE_COMMIT}
    failed = [line.split() for line in said if line.startswith("failed ")]
    return all(error in ("OutcomeUnknown", *AFTERWARDS) for _, counter, error in failed if counter in saves)


def points(lab: Lab, kind: Kind, kinds: Kinds) -> list[tuple[str, str]]:
    """Names of calls, and which of them are to fail."""
    if POINT:
        name, _, when = POINT.partition("/")
        return [(name, when)]
    found: list[tuple[str, str]] = []
    calls = lab.calls(kind, "verbs", kinds.traced)
    for name in kinds.calls:
        numbers = spread(range(1, calls[name] + 1), kinds.in_the_lab) if FULL else [calls[name] // 2 + 1]
        for number in numbers if calls[name] else ():
            found.append((name, f"{number}"))
            if kinds.is_lasting:
                found.append((name, f"{number}+"))
    return found if FULL else [found[at] for at in spread(range(len(found)), kinds.share)]


@covers("A8")
@pytest.mark.parametrize("error", ["EIO", "EROFS", "ENOSPC"])
@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_a_disk_that_takes_nothing_any_more(lab: Lab, kind: Kind, error: str) -> None:
    """From one verb on, all calls that write fail: at once, or after a few of each have worked."""
    tried = 0
    for unharmed, after in gone_from():
        fault = Fault(",".join(WRITING), f"{after}+", f"error={error}")
        with repeated_by(f"{unharmed}/{after}"):
            traced = lab.attempt(kind, "verbs", WRITING, fault, Task("", lease=LEASE, unharmed=unharmed))
        tried += traced is not None and traced.struck is not None
    assert tried, "nothing was struck"
    ledger.note("a disk that accepts no writes", kind, **{error: tried})


def gone_from() -> list[tuple[int, int]]:
    """From which verb on, and after how many calls of each name."""
    if POINT:
        unharmed, after = map(int, POINT.split("/"))
        return [(unharmed, after)]
    everything = [(unharmed, after) for unharmed in range(len(SCRIPT)) for after in (1, 2, 3)]
    return everything if FULL else [everything[at] for at in (4, 31)]


@covers("A8", "A13")
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("directory", marks=in_full("one attempt takes seconds"))])
def test_files_that_cannot_grow(lab: Lab, kind: Kind) -> None:
    """A real limit: the write that reaches it is cut short, and those after it fail."""
    limits = [int(POINT)] if POINT else spread(range(0, LARGEST[kind], 997), 40 if FULL else 2)
    failed = 0
    for limit in limits:
        with repeated_by(f"{limit}"):
            traced = lab.attempt(kind, "verbs", WRITING, None, Task("", lease=LEASE, limit=limit))
        assert traced is not None
        failed += any(line.startswith(("failed", "unopened")) for line in traced.lines)
    assert failed, "no limit was reached"
    ledger.note("a file that cannot grow", kind, limits=len(limits))
