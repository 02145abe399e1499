"""Drills of tests are short: `test_further.py` is about second kills, interrupts and late calls."""

from __future__ import annotations

import pytest

from holdfast.testing.drill import lab
from tests.selection import IN_FULL


@pytest.fixture(autouse=True)
def _few_further(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not IN_FULL and request.path.name != "test_further.py":
        monkeypatch.setattr(lab, "further_of", lambda points: 1)
