"""Results that take long to compute, which requests share: figures of the store, texts of steps, and a verification."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from holdfast.errors import Conflict, HoldfastError
from holdfast.handle import Holdfast
from holdfast.inspect import inbox
from holdfast.types import VerifyProgress, VerifyReport

F = TypeVar("F")
K = TypeVar("K")
V = TypeVar("V")

_REMEMBERED: Final = 20_000
_FRESH: Final = 2.0  # seconds for which figures are reused
_REST: Final = 20  # or this many times as long as counting took, if that is longer


class Figures(Generic[F]):
    """Figures that are counted at most every few seconds."""

    def __init__(self, count: Callable[[], F], clock: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._clock = clock
        self._lock = threading.Lock()
        self._known: tuple[F] | None = None
        self._fresh_until = 0.0

    def get(self) -> F:
        """Return the figures, which may be a few seconds old."""
        with self._lock:
            started = self._clock()
            if self._known is None or started > self._fresh_until:
                self._known = (self._count(),)
                ended = self._clock()
                self._fresh_until = ended + max((ended - started) * _REST, _FRESH)
            return self._known[0]

    def expire(self) -> None:
        """Count again at the next request, because an action changed the figures."""
        self._fresh_until = 0.0


class Remembered(dict[K, V]):
    """Values that were computed earlier and never change. The oldest are forgotten."""

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        while len(self) > _REMEMBERED:
            with suppress(RuntimeError):  # another thread forgot one at the same time
                self.pop(next(iter(self)), None)


def inbox_count(hf: Holdfast) -> Figures[int | None]:
    """Return the number of runs that need a person; None if it cannot be read. The page itself reports the error."""

    def count() -> int | None:
        with suppress(HoldfastError):
            return len(inbox(hf).items)
        return None

    return Figures(count)


class Verification:
    """Verifies the store in a background thread, one verification at a time."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.started = 0.0
        self.took = 0.0
        self.progress: VerifyProgress | None = None
        self.report: VerifyReport | None = None
        self.failed: str | None = None

    @property
    def is_under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start to verify. Raises Conflict if a verification is under way."""
        with self._lock:
            if self.is_under_way:
                raise Conflict("a verification is already running; the Store page shows its progress")
            self.progress = self.report = self.failed = None
            self.started = time.monotonic()
            self._thread = threading.Thread(target=self._verify, name="holdfast-verify", daemon=True)
            self._thread.start()

    def _verify(self) -> None:
        try:
            self.report = self._hf.verify(progress=self._note)
        except HoldfastError as error:
            self.failed = str(error)
        self.took = time.monotonic() - self.started

    def _note(self, progress: VerifyProgress) -> None:
        self.progress = progress
