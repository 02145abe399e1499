"""What the threads of one open handle share: the store, the bases, and one lock per thread."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from holdfast.codec.typed import StateType
from holdfast.delta.base import Bases
from holdfast.errors import Closed
from holdfast.observer import Observer
from holdfast.redaction import Redaction
from holdfast.stores.contract import Store
from holdfast.threads.migration import Migrations


class Conversion(Protocol):
    """How the states of a thread become plain values and come back."""

    def to_plain(self, state: Any) -> Any: ...

    def from_plain(self, plain: Any) -> Any: ...


class _AsIs:
    """States that are plain values already; the codec refuses what is not."""

    def to_plain(self, state: Any) -> Any:
        return state

    def from_plain(self, plain: Any) -> Any:
        return plain


class Line:
    """Lets one save at a time of a thread through, however many handles on it a process has."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _lines.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def renew(self) -> None:
        """After fork(), in the child: whoever held the lock is not here to release it."""
        self._lock = threading.RLock()


_lines: weakref.WeakSet[Line] = weakref.WeakSet()


class Session:
    """Shared by the threads of one handle."""

    def __init__(
        self,
        store: Store,
        *,
        namespace: str,
        base_bytes: int,
        max_state_bytes: int,
        saved: Callable[[str], None],
        redaction: Redaction,
    ) -> None:
        self.store = store
        self.namespace = namespace
        self.bases = Bases(base_bytes)
        self.migrations = Migrations()
        self.max_state_bytes = max_state_bytes
        self.saved = saved
        self.redaction = redaction
        self.observer: Observer | None = None
        self._lines: weakref.WeakValueDictionary[str, Line] = weakref.WeakValueDictionary()
        self._closed = False
        _sessions.add(self)

    def check_open(self) -> None:
        if self._closed:
            raise Closed("this handle was closed; open the store again")

    def close(self) -> None:
        self._closed = True
        self.bases.clear()
        self.store.close()

    def line(self, name: str) -> Line:
        line = self._lines.get(name)
        # Two threads that ask at once may get two: the store's compare-and-set then decides between their saves.
        return self._lines.setdefault(name, Line()) if line is None else line

    def conversion(self, type: Any) -> Conversion:
        return _AsIs() if type is None else StateType(type)


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _renew_locks() -> None:
    for line in list(_lines):
        line.renew()
    for session in list(_sessions):
        session.bases.renew()


os.register_at_fork(after_in_child=_renew_locks)
