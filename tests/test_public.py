"""The public surface: exactly the names and parameters in public_names.txt.

python -m tests.test_public    rewrite public_names.txt, after a change that was meant
"""

from __future__ import annotations

import difflib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import holdfast
import holdfast.inspect
from tests.covers import covers
from tests.waiting import DEADLINE

SNAPSHOT = Path(__file__).with_name("public_names.txt")

CLASSES = (
    holdfast.Holdfast,
    holdfast.Thread,
    holdfast.Run,
    holdfast.AsyncHoldfast,
    holdfast.AsyncThread,
    holdfast.AsyncRun,
    holdfast.Worker,
)


def public_names() -> Iterator[str]:
    """The lines of the snapshot."""
    yield "# The public names of holdfast. Written by: python -m tests.test_public"
    yield ""
    yield "holdfast"
    for name in holdfast.__all__:
        yield f"    {_described(name, getattr(holdfast, name))}"
    yield ""
    yield "holdfast.inspect"
    for name in holdfast.inspect.__all__:
        yield f"    {_described(name, getattr(holdfast.inspect, name))}"
    for shown in CLASSES:
        yield ""
        yield shown.__name__
        for name in sorted(dir(shown)):
            if not name.startswith("_") or name in ("__enter__", "__aenter__", "__iter__", "__aiter__"):
                yield f"    {_described(name, inspect.getattr_static(shown, name))}"


def _described(name: str, found: object) -> str:
    """A name; of a function with its parameters and their defaults."""
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    if isinstance(found, property):
        return f"{name} (property)"
    if not inspect.isfunction(found):
        return name
    shown = inspect.signature(found)
    plain = [each.replace(annotation=each.empty) for each in shown.parameters.values() if each.name != "self"]
    signature = shown.replace(parameters=plain, return_annotation=shown.empty)
    return f"{'async ' if inspect.iscoroutinefunction(found) else ''}{name}{signature}"


def test_the_public_names_are_those_of_the_snapshot() -> None:
    before, now = SNAPSHOT.read_text("utf-8").splitlines(), list(public_names())
    changes = difflib.unified_diff(before, now, "public_names.txt", "the library", lineterm="", n=1)
    assert before == now, "\n".join(["the public names changed; if that was meant, rewrite the snapshot", *changes])


def test_every_public_name_is_there() -> None:
    assert [name for name in holdfast.__all__ if getattr(holdfast, name) is None] == []
    assert not hasattr(holdfast, "nonsense")


def test_open_and_aopen_take_the_same() -> None:
    assert list(inspect.signature(holdfast.open).parameters) == list(inspect.signature(holdfast.aopen).parameters)


def test_the_fields_of_a_checkpoint() -> None:
    assert set(get_type_hints(holdfast.Checkpoint)) == {
        "id",
        "thread",
        "seq",
        "step",
        "parent",
        "created_at",
        "status",
        "reason",
        "label",
        "tags",
        "metadata",
        "agent",
        "trigger",
        "usage",
        "resume_hint",
        "size",
        "digest",
        "schema_version",
        "state",
        "skipped",
        "lost",
    }
    assert set(get_type_hints(holdfast.Usage)) == {"input", "output", "cached", "total", "cost", "currency"}


@covers("G7", "continuum/Layer2Error", "cortex/CheckpointError")
def test_every_error_is_a_holdfast_error_and_says_something() -> None:
    for name in holdfast.__all__:
        found = getattr(holdfast, name)
        if isinstance(found, type) and issubclass(found, Exception):
            assert issubclass(found, holdfast.HoldfastError)
            assert found.__doc__


def test_importing_holdfast_imports_no_store_and_no_asyncio() -> None:
    code = (
        "import sys, holdfast; bad = {'asyncio', 'holdfast.aio', 'holdfast.stores.sqlite', 'holdfast.testing'};"
        "assert not bad & set(sys.modules), bad & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE)


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(public_names()) + "\n", "utf-8")
