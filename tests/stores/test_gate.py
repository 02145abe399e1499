"""The gate: who holds it is known by the file that has its name, also where that is another one than before."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import Busy, StoreError
from holdfast.stores.write_queue import Gate


def test_a_lock_on_a_file_that_has_lost_its_name_keeps_nobody_out(tmp_path: Path) -> None:
    first, second = (Gate(str(tmp_path / "db"), 0.05) for _ in range(2))
    first.enter()
    first.leave()
    (tmp_path / "db-gate").unlink()
    second.enter()
    with pytest.raises(Busy):
        first.enter()
    second.leave()
    first.enter()
    with pytest.raises(Busy):
        second.enter()
    first.close()
    second.enter()
    second.close()


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    gate = Gate(str(folder / "db"), 0.05)
    gate.enter()
    gate.leave()
    folder.rename(tmp_path / "away")
    with pytest.raises(StoreError, match="lock file"):
        gate.enter()
