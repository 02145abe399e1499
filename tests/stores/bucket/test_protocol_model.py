"""The models of the protocol hold, and the checker finds the bugs that are seeded in them."""

from __future__ import annotations

import pytest

from scripts.bucket_model import CASES, Case, check

# The largest takes a minute: make model checks it.
QUICK = [case for case in CASES if "WORKERS=3" not in case.options]


@pytest.mark.parametrize("case", QUICK, ids=lambda case: "-".join((case.model, *case.options)))
def test_the_model(case: Case) -> None:
    found = check(case)
    assert bool(found.error) == case.is_bug, found
