"""How a test says which features of an earlier system it holds Holdfast to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])

_COVERED = "covered_features"


def covers(system: str, *features: str) -> Callable[[Test], Test]:
    """Record on a test that it shows these features of `system`, by their ids. Several may stand on one test."""
    if not features:
        raise ValueError("covers() needs the id of a feature")

    def record(test: Test) -> Test:
        setattr(test, _COVERED, (*((system, feature) for feature in features), *covered_by(test)))
        return test

    return record


def covered_by(test: object) -> tuple[tuple[str, str], ...]:
    """What a test covers: (system, id of the feature), as written."""
    return getattr(test, _COVERED, ())
