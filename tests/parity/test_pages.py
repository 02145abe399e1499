"""docs/internals/parity.md and docs/internals/defects.md are complete and up to date, and every mark is on a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.covers import covers
from tests.parity import pages


def test_every_feature_and_defect_has_a_test_or_a_reason_and_every_mark_is_sound() -> None:
    assert pages.problems(pages.collect()) == []


def test_the_pages_are_up_to_date() -> None:
    tests = pages.collect().tests
    assert pages.PARITY.read_text("utf-8") == pages.render_parity(tests), "run python -m tests.parity.pages"
    assert pages.DEFECTS.read_text("utf-8") == pages.render_defects(tests), "run python -m tests.parity.pages"


def test_the_lists_are_complete() -> None:
    assert {name: len(system.features) for name, system in pages.SYSTEMS.items()} == {
        "ares": 92,
        "smooth": 128,
        "continuum": 120,
        "cortex": 234,
    }
    counts = {"A": 18, "B": 8, "C": 11, "D": 7, "E": 14, "F": 11, "G": 10, "H": 9}
    assert list(pages.DEFECT_LIST.titles) == list(counts)
    numbers = [f"{letter}{n}" for letter, count in counts.items() for n in range(1, count + 1)]
    assert list(pages.DEFECT_LIST.defects) == numbers


def test_every_row_of_the_pages_has_its_cells() -> None:
    for page, cells in ((pages.PARITY, 3), (pages.DEFECTS, 4)):
        rows = [line for line in page.read_text("utf-8").splitlines() if line.startswith("| ") and line[2] not in "f|"]
        assert len(rows) > 80
        for row in rows:
            texts = row.replace("\\|", "").strip("|").split("|")
            assert len(texts) == cells, row
            assert all(text.strip() for text in texts), row


def test_a_mark_needs_an_id() -> None:
    with pytest.raises(ValueError, match="at least one id"):
        covers()


SOURCE = """
from tests.covers import covers

@covers("ares/Checkpoint.id", "A1")
@covers("A2")
def test_one() -> None: ...

@covers("A1")
class TestTwo:
    @covers("A3")
    def test_three(self) -> None: ...
"""


def test_marks_are_read_from_functions_classes_and_methods(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "test_it.py").write_text(SOURCE)
    marks = pages.collect(tmp_path)
    one, two, three = (f"deep/test_it.py::{name}" for name in ("test_one", "TestTwo", "TestTwo::test_three"))
    assert marks.tests == {"ares/Checkpoint.id": [one], "A1": [one, two], "A2": [one], "A3": [three]}
    assert marks.misplaced == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("test_it.py", '@covers("A1")\ndef helper() -> None: ...\n'),
        ("test_it.py", 'def test_outer() -> None:\n    @covers("A1")\n    def test_inner() -> None: ...\n'),
        ("test_it.py", '@covers("A1")\nclass Helper: ...\n'),
        ("test_it.py", "@covers(NAME)\ndef test_it() -> None: ...\n"),
        ("test_it.py", "@covers(*NAMES)\ndef test_it() -> None: ...\n"),
        ("helpers.py", '@covers("A1")\ndef test_it() -> None: ...\n'),
    ],
)
def test_a_mark_that_is_not_on_a_test_is_a_problem(tmp_path: Path, name: str, source: str) -> None:
    (tmp_path / name).write_text(source)
    marks = pages.collect(tmp_path)
    assert marks.tests == {}
    assert [place.partition(":")[0] for place in marks.misplaced] == [name]
    assert any("must be on a test" in problem for problem in pages.problems(marks))


def test_a_missing_test_and_an_unknown_id_are_problems() -> None:
    tests = {id: ["test_it.py::test_it"] for id in pages.known() if id != "A1"}
    assert pages.problems(pages.Marks(tests, [])) == ["no test covers A1"]
    tests |= {"A1": ["test_it.py::test_it"], "ares/Checkpoint.colour": ["test_it.py::test_it"]}
    [problem] = pages.problems(pages.Marks(tests, []))
    assert "ares/Checkpoint.colour" in problem


def test_a_feature_that_is_not_here_needs_no_test_and_all_others_do() -> None:
    found = pages.problems(pages.Marks({}, []))
    assert len(found) == len(pages.known()) - len(pages.NOT_HERE)
    assert not any(problem.endswith(tuple(pages.NOT_HERE)) for problem in found)


def test_a_page_names_the_reason_before_the_tests() -> None:
    page = pages.render_parity({"smooth/CheckpointStore.load": ["test_it.py::test_load"]})
    [row] = [
        line for line in page.splitlines() if line.startswith("| `CheckpointStore.load` | one checkpoint by its id")
    ]
    reason = pages.OTHERWISE["smooth/CheckpointStore.load"]
    assert row.endswith(f"| **otherwise**: {reason}<br>`test_it.py::test_load` |")
    [row] = [line for line in page.splitlines() if line.startswith("| `ttl_secs` |")]
    assert row.endswith(f"| **not here**: {pages.NOT_HERE['ares/ttl_secs']} |")
