"""Verifying beside writers: a thread that is dropped meanwhile is not a damaged one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Retention
from holdfast.errors import Damaged
from holdfast.threads.scan import thread_named
from holdfast.threads.verify import verify
from tests.threads.wholes import KINDS, fill, opened, shown, state_at


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", ["cells", "numbered"])
@pytest.mark.parametrize("is_made_again", [True, False])
def test_what_is_dropped_meanwhile_is_not_damaged(kind: str, verb: str, is_made_again: bool, tmp_path: Path) -> None:
    """Between the reading of its checkpoints and that of their cells, or of its run and what that began at."""
    with opened(kind, tmp_path) as hf:
        fill(hf)
        for n in range(1, 4):
            hf.thread("run").save(state_at(n))
        store = hf.context.store
        row = thread_named(store, "run")
        assert row is not None
        number, is_there = row.position.thread, True

        def dropping(*given: Any, **page: Any) -> Any:
            nonlocal is_there
            is_asked = page == {"after": number - 1, "limit": 1} or any(
                span.thread == number for spans in given for span in spans
            )
            if is_there and is_asked:
                is_there = False
                hf.thread("run").drop()
                if is_made_again:
                    hf.thread("run").save({"n": 1})
            return getattr(store, verb)(*given, **page)

        # A store that reads many threads at once asks for one by its number only where it cannot.
        alone: dict[str, Any] = {"scan": lambda _: {}} if verb == "numbered" and hasattr(store, "scan") else {}
        assert verify(shown(store, **alone, **{verb: dropping})).problems == ()
        assert not is_there


def test_a_thread_that_only_its_name_does_not_find_is_not_dropped(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as hf:
        fill(hf)
        store = hf.context.store

        def lost(name: str) -> Any:
            return None if name == "t" else store.head(name)

        def broken(_: Any) -> Any:
            raise Damaged("of all things")

        assert "t" in {problem.thread for problem in verify(shown(store, head=lost, cells=broken)).problems}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_pruned_meanwhile_is_not_damaged(kind: str, tmp_path: Path) -> None:
    def large(n: int) -> Any:
        return {"plan": [f"step {n}, part {part}" * 9 for part in range(50)], "text": f"{n}" * 20_000}

    with opened(kind, tmp_path) as hf:
        thread, store = hf.thread("t"), hf.context.store
        waiting = 0

        def pruning(*given: Any) -> Any:
            nonlocal waiting
            if waiting == 0:
                thread.save(large(9))
                thread.prune(Retention(keep_last=1))
                hf.optimize()
            waiting -= 1
            return store.cells(*given)

        # Without `scan` the checkpoints of a thread are read page by page.
        alone: dict[str, Any] = {"scan": lambda _: {}} if hasattr(store, "scan") else {}
        for how, waiting in (({}, 0), (alone, 0), (alone, 1)):
            for n in range(4):
                thread.save(large(n))
            assert verify(shown(store, **how, cells=pruning)).problems == ()
            assert waiting < 0
            thread.drop()
