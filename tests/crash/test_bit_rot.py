"""Bit rot: whatever becomes of the bytes of a store at rest, a load is equal or raises, and a check finds it.

Each damage is a short text, `flip,default/threads/main/log.jsonl,512` or `column,effect,3,mark`, that makes the same
one again; the bit that is flipped follows from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.covers import covers
from tests.crash import ledger
from tests.crash.bounds import held_to
from tests.crash.lab import FULL, POINT, repeated_by
from tests.crash.rot_damage import Rotten, RottenDirectory
from tests.crash.rot_scene import Judge
from tests.crash.rot_tables import RottenPostgres, RottenSQLite
from tests.memory import folder_in_memory
from tests.stores.postgres.server import schema_of

SHARES = 16 if FULL else 1
MEMORY = 1 << 30  # for a look at what is left; a store of the scene is smaller than a megabyte
MOST = {"sqlite": 12, "directory": 14, "postgres": 2}
MAKE: dict[str, Callable[[Path], Rotten]] = {
    "sqlite": RottenSQLite,
    "directory": RottenDirectory,
    "postgres": lambda folder: RottenPostgres(schema_of(folder)),
}


@covers("A10", "continuum/ChecksumUtils.verify_checksum", "continuum/AtomicFileWriter.with_verify")
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("kind", list(MAKE))
def test_a_load_is_equal_or_raises(tmp_path: Path, kind: str, share: int) -> None:
    with folder_in_memory() as folder:
        rotten = MAKE[kind](tmp_path if kind == "postgres" else folder)
        points = [POINT] if POINT else list(rotten.points(None if FULL else MOST[kind]))[share::SHARES]
        tried = Counter[str]()
        noticed = 0
        for point in points:
            with repeated_by(point):
                noticed += is_noticed(rotten, point)
            tried[point.partition(",")[0]] += 1
    ledger.note("bit rot", kind, **tried)
    assert noticed or POINT


def is_noticed(rotten: Rotten, point: str) -> bool:
    """Make a damage and look at what is left."""
    with rotten.damaged(point) as url, held_to(MEMORY):
        verdict = Judge(rotten.before, rotten.pardoned(point)).look(url)
    reach = rotten.reach(point)
    assert reach is None or verdict.hurt <= reach, f"it hurts {sorted(verdict.hurt - reach)}, too"
    assert verdict.is_found or not rotten.is_told(point), "verify does not find it"
    return bool(verdict.noticed) or verdict.is_found
