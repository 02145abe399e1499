"""The page of guarantees names existing tests for every promise, and has every invariant of the architecture."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.cases import for_each

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "trust" / "guarantees.md").read_text("utf-8")

NAMED = sorted(set(re.findall(r"`((?:tests|src)/[\w/]+\.py)::(\w+)`", PAGE)))
PROMISES = re.findall(r"^### (\d+)\. (.+?)$(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)


@cache
def names_of(path: str) -> set[str]:
    """The tests of a file: functions, classes, methods, and what is made a test by an assignment."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
            case _:
                pass
    return {name for name in names if name.startswith(("test", "Test"))}


@for_each(("path", "name"), NAMED)
def test_every_test_that_is_named_exists(path: str, name: str) -> None:
    assert (ROOT / path).is_file()
    assert name in names_of(path)


def test_no_test_is_named_in_another_way() -> None:
    assert len(re.findall(r"\.py::", PAGE)) == len(re.findall(r"`(?:tests|src)/[\w/]+\.py::\w+`", PAGE))


def test_every_promise_is_held_by_a_test() -> None:
    assert len(PROMISES) >= 15
    for number, promise, text in PROMISES:
        assert "Held by `" in text, f"{number}. {promise}"


def test_every_invariant_of_the_architecture_is_a_promise() -> None:
    text = (ROOT / "docs" / "internals" / "architecture.md").read_text("utf-8")
    page = text.partition("## Invariants")[2].partition("\n## ")[0]
    invariants = {int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert invariants
    assert invariants <= {int(number) for number, _, _ in PROMISES}


def test_the_threat_model_is_where_people_look_for_it() -> None:
    security = (ROOT / "SECURITY.md").read_text("utf-8")
    for heading in ("## Reporting", "## Supported versions", "## Threat model"):
        assert heading in security
