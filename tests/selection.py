"""Which stores a test runs on, and how much of a sweep it tries.

The contract suite tests the stores. `make test` runs the other tests on SQLite only, unless a test says why it needs
every store; `make test-stores` sets HOLDFAST_STORES=all and runs them on all, with every sweep in full.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

EVERY_STORE = os.environ.get("HOLDFAST_STORES") == "all"
STORES = frozenset({"memory", "sqlite", "directory", "postgres", "encrypted"})
IN_FULL = EVERY_STORE or os.environ.get("HOLDFAST_LAB") == "full"
ALWAYS_ALL = ("stores", "crash")  # folders whose tests are about the stores themselves

_ROOT = Path(__file__).parent


def every_store(because: str) -> pytest.MarkDecorator:
    """Run a test, a class or (as `pytestmark`) a module on every store, also in `make test`."""
    if not because:
        raise ValueError("say why the test needs every store")
    return pytest.mark.every_store(because)


def on_store(kind: str) -> pytest.MarkDecorator:
    """Name the store of a test or class that has no parameter that does."""
    if kind not in STORES:
        raise ValueError(f"no such store: {kind}")
    return pytest.mark.on_store(kind)


def in_full(because: str) -> pytest.MarkDecorator:
    """Leave a test, a class or (as `pytestmark`) a module to `make test-stores`."""
    if not because:
        raise ValueError("say why make test leaves the test out")
    return pytest.mark.in_full(because)


def tries(in_full: int, share: int) -> int:
    """How many points of a sweep a test tries: all with HOLDFAST_STORES=all or HOLDFAST_LAB=full, else a share."""
    return in_full if IN_FULL else share


def left_out(items: Iterable[pytest.Item], named: Iterable[str]) -> list[pytest.Item]:
    """The cases that this run leaves out. `named` are ids that the command line asks for: they are kept.

    A test none of whose cases is on SQLite alone keeps all of them: it is about other stores.
    """
    if EVERY_STORE:
        return []
    asked = set(named)
    cases = [(item, _stores(item, getattr(item, "callspec", None))) for item in items]
    on_sqlite = {_function(item) for item, stores in cases if stores == {"sqlite"}}
    return [
        item
        for item, stores in cases
        if item.nodeid not in asked
        and (
            item.get_closest_marker("in_full") is not None
            or (stores - {"sqlite"} and _function(item) in on_sqlite and not _is_always_all(item))
        )
    ]


def keep_selected(metafunc: pytest.Metafunc) -> None:
    """Drop the cases of one function that `left_out` would leave out: most of the time of collecting is theirs.

    `left_out` still sees the cases of functions that are in several classes.
    """
    node = metafunc.definition
    if EVERY_STORE or any("[" in each for each in metafunc.config.args) or _is_always_all(node):
        return
    cases = [(case, _stores(node, case)) for case in metafunc._calls]
    if any(stores == {"sqlite"} for _, stores in cases):
        metafunc._calls = [case for case, stores in cases if not stores - {"sqlite"}]


def _stores(node: pytest.Item, case: Any) -> set[str]:
    """The stores that a case's marks and parameters name: "sqlite", "sqlite-async" or ("sqlite", ...)."""
    found = {mark.args[0] for mark in node.iter_markers("on_store")}
    for value in case.params.values() if case is not None else ():
        first = value[0] if isinstance(value, tuple) and value else value
        kind = first.partition("-")[0] if isinstance(first, str) else None
        if kind in STORES:
            found.add(kind)
    return found


def _function(item: pytest.Item) -> tuple[Path, str]:
    """What the cases of one test have in common, over the classes of a module too."""
    return item.path, getattr(item, "originalname", None) or item.name


def _is_always_all(item: pytest.Item) -> bool:
    return item.get_closest_marker("every_store") is not None or item.path.relative_to(_ROOT).parts[0] in ALWAYS_ALL
