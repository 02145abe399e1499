"""docs/parity.md is what the suites give, and leaves nothing out."""

from __future__ import annotations

import importlib

import pytest

from tests.parity import table
from tests.parity.covering import covered_by, covers
from tests.parity.features import FEATURES, TITLES
from tests.parity.otherwise import NOT_HERE, OTHERWISE


def test_every_feature_is_covered_by_a_test() -> None:
    assert table.missing(table.collect()) == []


def test_no_test_covers_a_feature_that_there_is_not() -> None:
    assert table.unknown(table.collect()) == []


def test_the_page_is_what_the_suites_give() -> None:
    assert table.PAGE.read_text("utf-8") == table.render(table.collect()), "run python -m tests.parity.table"


def test_no_cell_of_the_page_is_empty() -> None:
    rows = [line for line in table.PAGE.read_text("utf-8").splitlines() if line.startswith("|")]
    assert len(rows) == sum(len(features) + 2 for features in FEATURES.values())
    for row in rows:
        assert len(row.split("|")) == 5, f"a cell has a bar in it: {row}"
        assert all(cell.strip() for cell in row.strip("|").split("|")), row


@pytest.mark.parametrize("system", FEATURES)
def test_a_system_has_features_and_names_each_once(system: str) -> None:
    ids = [feature for feature, _ in FEATURES[system]]
    assert ids
    assert len(ids) == len(set(ids))
    assert system in TITLES


@pytest.mark.parametrize("name", table.suites())
def test_every_test_of_a_suite_covers_something_and_only_tests_do(name: str) -> None:
    for member, value in vars(importlib.import_module(name)).items():
        if getattr(value, "__module__", None) == name and callable(value):
            assert bool(covered_by(value)) == member.startswith("test_"), member


def test_what_is_given_otherwise_is_shown_by_a_test() -> None:
    covered = table.collect()
    assert [feature for feature in OTHERWISE if feature not in covered] == []


def test_a_feature_is_given_otherwise_or_not_here_and_each_reason_is_a_sentence() -> None:
    assert OTHERWISE.keys() & NOT_HERE.keys() == set()
    for reason in (*OTHERWISE.values(), *NOT_HERE.values()):
        assert len(reason.split()) > 4
        assert "|" not in reason


def test_a_reason_stands_in_the_cell_ahead_of_the_tests() -> None:
    page = table.render({("smooth", "CheckpointStore.load"): ["test_smooth.py::test_load"]})
    [row] = [line for line in page.splitlines() if line.startswith("| `CheckpointStore.load` | one by its id ")]
    reason = OTHERWISE["smooth", "CheckpointStore.load"]
    assert row.endswith(f"| **otherwise**: {reason}<br>`test_smooth.py::test_load` |")
    [row] = [line for line in page.splitlines() if line.startswith("| `ttl_secs` |")]
    assert row.endswith(f"| **not here**: {NOT_HERE['ares', 'ttl_secs']} |")


def test_what_is_not_here_needs_no_test_and_all_else_does() -> None:
    assert ("ares", "ttl_secs") not in table.missing({})
    assert ("smooth", "CheckpointStore.load") in table.missing({})


def test_covers_is_recorded_in_the_order_of_reading() -> None:
    @covers("ares", "a", "b")
    @covers("smooth", "c")
    def test() -> None:
        pass

    assert covered_by(test) == (("ares", "a"), ("ares", "b"), ("smooth", "c"))


def test_covers_needs_a_feature() -> None:
    with pytest.raises(ValueError, match="id of a feature"):
        covers("ares")


def test_what_is_missing_and_what_is_unknown_is_found() -> None:
    covered = {key: tests for key, tests in table.collect().items() if key != ("ares", "Checkpoint.id")}
    covered["ares", "Checkpoint.colour"] = ["test_ares.py::test_colour"]
    assert table.missing(covered) == [("ares", "Checkpoint.id")]
    assert table.unknown(covered) == [("ares", "Checkpoint.colour")]
