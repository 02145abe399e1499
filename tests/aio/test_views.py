"""The generated async methods are those of the sync classes."""

from __future__ import annotations

import inspect

from holdfast import AsyncHoldfast, AsyncThread, Holdfast, Thread
from scripts.aio_views import TARGET, formatted, generated
from tests.covers import covers


def test_the_generated_methods_are_current() -> None:
    assert TARGET.read_text("utf-8") == formatted(generated()), "stale: run python -m scripts.aio_views"


@covers("continuum/CheckpointSystemTrait")
def test_every_method_is_there_with_the_same_parameters() -> None:
    for sync, view in ((Thread, AsyncThread), (Holdfast, AsyncHoldfast)):
        for name, method in inspect.getmembers(sync, inspect.isfunction):
            if name.startswith("_") or (sync, name) == (Holdfast, "worker"):  # a worker blocks a thread of its own
                continue
            expected = inspect.signature(method).parameters.values()
            found = inspect.signature(getattr(view, name)).parameters.values()
            # The first two take functions of a Run or an AsyncRun. A sync `recover` runs one run at a time.
            other = ("on_resume", "handlers", "concurrency")
            assert [e for e in expected if e.name not in other] == [e for e in found if e.name not in other], name
