"""Cells whose lines changed places: each is whole, and yet the list they make up is not the one that was saved."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast.errors import Damaged
from tests.covers import covers
from tests.stores.log.conftest import log_of, records_of


@covers("G5")
@pytest.mark.parametrize("how", ["swapped", "repeated"])
def test_lines_that_are_not_where_they_were_are_damage(path: Path, how: str) -> None:
    with holdfast.open(f"dir:{path}", durability="off") as hf:
        hf.thread("t").save({"messages": [{"role": "user", "content": f"message {n} " * 20} for n in range(20)]})
    log = log_of(path, "t")
    cells = [at for at, record in enumerate(records_of(log)) if record["t"] == "cell"]
    lines = log.read_bytes().splitlines(keepends=True)
    one, other = cells[3], cells[4]
    lines[one], lines[other] = lines[other], lines[one] if how == "swapped" else lines[other]
    log.write_bytes(b"".join(lines))
    with holdfast.open(f"dir:{path}", durability="off") as hf:
        with pytest.raises(Damaged):
            hf.thread("t").latest()
        assert not hf.verify().ok
