"""Fixtures: one store, in SQLite, and the world of the tests of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.conftest import world

__all__ = ["url", "world"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The address of a store in SQLite."""
    return str(tmp_path / "agent.db")
