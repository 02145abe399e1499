"""The mark that says which features and defects of earlier systems a test shows."""

from __future__ import annotations

import pytest


def covers(*ids: str) -> pytest.MarkDecorator:
    """Mark a test with the ids of what it shows: a feature as "ares/Checkpoint.id", a defect as "A1".

    parity.md and defects.md in docs/internals list these tests. `python -m tests.parity.pages` writes both pages.
    """
    if not ids:
        raise ValueError("covers() needs at least one id")
    return pytest.mark.covers(*ids)
