"""The result of a run or of one of its turns, found without claiming the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from holdfast.codec import msgpack
from holdfast.errors import NotFound, Unfinished
from holdfast.runs.claim import completed
from holdfast.runs.record import pauses
from holdfast.runs.waits import checked_seconds
from holdfast.stores.contract import Store
from holdfast.text import quoted
from holdfast.threads.scan import thread_named

PENDING: Final = object()
_WITHOUT_RESULT: Final = ("failed", "halted", "dead")


class ResultSearch:
    """One wait for a result. `look()` until it is found, with `pauses()` between."""

    def __init__(self, store: Store, thread: str, turn: str | None, wait: float) -> None:
        self._store = store
        self._thread = thread
        self._turn = turn
        self._seconds = checked_seconds("wait", wait)

    def pauses(self) -> Iterator[float]:
        """The seconds to sleep after each look that found nothing. After them, the `is_last` look is due."""
        return pauses(self._seconds)

    def look(self, *, is_last: bool = False) -> Any:
        """The result, or PENDING if it may still come.

        NotFound if there is no run. Unfinished if no result will come, or none has come at the last look.
        """
        thread = thread_named(self._store, self._thread)
        run = None if thread is None else self._store.run(thread.position.thread)
        if thread is None or run is None:
            missing = (
                f"thread {quoted(self._thread)} has no run" if thread else f"there is no thread {quoted(self._thread)}"
            )
            raise NotFound(f"{missing}, so there is no result. Start a run with hf.run or hf.submit.")
        done = completed(self._store, thread, run, self._turn)
        if done is not None:
            return None if done.result is None else msgpack.decode(done.result)
        whose = f"the run of thread {quoted(thread.name)}"
        if self._turn is not None and self._turn != run.turn:
            problem = f"turn {quoted(self._turn)} of thread {quoted(thread.name)} has no result yet"
        elif run.status == "completed":
            raise Unfinished(f"{whose} was rewound, so it has no result; hf.run resumes it", run.turn)
        elif run.status in _WITHOUT_RESULT:
            raise Unfinished(f"{whose} is {run.status} and has no result ({run.reason}); hf.run resumes it", run.turn)
        else:
            problem = f"{whose} is {run.status} and has no result yet"
        if is_last:
            raise Unfinished(f"{problem}. Ask again later, or pass a longer wait=.", run.turn)
        return PENDING
