"""Keys: what tells the calls of a step apart, so that a replay finds the one that was made."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import msgspec

from holdfast.errors import InvalidArgument

_POLL_SECONDS: Final = 0.05

BESIDE: Final = (
    "calls that are made beside each other in one step need keys: after a crash nobody could tell which was which; "
    "pass key="
)


class _Made(msgspec.Struct, frozen=True):
    """A call that is under way."""

    has_key: bool
    thread: threading.Thread


class Keys:
    """The keys of the step that is open, and the calls that are under way in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._ordinals: dict[str, int] = {}
        self._caller: int | None = None
        self._under_way: dict[str, _Made] = {}
        self._closed: str | None = None
        self.are_needed = False

    def open_step(self) -> None:
        with self._lock:
            self._ordinals = {}
            self._caller = None
            self._closed = None

    def close_step(self) -> None:
        """No call can be made from here on, until a step is opened or this one is reopened.

        InvalidArgument if calls are under way: a checkpoint would hold them without their results.
        """
        with self._lock:
            self._require_open()
            self._require_none_under_way("a step cannot be closed")
            self._closed = "the step is being closed; wait until that is done before you go on in the next"

    def reopen_step(self) -> None:
        """The step could not be closed."""
        with self._lock:
            self._closed = None

    def require_none_under_way(self, what: str) -> None:
        """InvalidArgument if calls are under way."""
        with self._lock:
            self._require_none_under_way(what)

    def end(self) -> None:
        """The block is being left: no call is made any more, and those that other threads are in come to their end."""
        with self._lock:
            self._closed = "the block of this run is being left: no more calls can be made in it"
            while self._is_in_another_thread():
                self._ended.wait(_POLL_SECONDS)

    def _is_in_another_thread(self) -> bool:
        # What this thread began, or one that has ended, nobody is in any more.
        here = threading.current_thread()
        return any(made.thread is not here and made.thread.is_alive() for made in self._under_way.values())

    @contextmanager
    def making(self, name: str, key: str | None, caller: int | None, *, can_be_left: bool = False) -> Generator[str]:
        """A call's key, with its name in it. Refuses calls beside each other that a replay could not tell apart.

        `caller` is the thread that makes the call, or None where calls without keys are told by overlapping only. A
        call that `can_be_left` half-way does not count as under way: nobody says when that happened.
        """
        if key is not None and (type(key) is not str or not key):
            raise InvalidArgument("a call's key is a text that is not empty")
        with self._lock:
            self._require_open()
            full = self._ordinal(name, caller) if key is None else f"{name}/{key}"
            ordinals = self._ordinals
            if full in self._under_way:
                raise InvalidArgument(f"two calls of {name!r} are under way with the same key; give each its own")
            if not can_be_left:
                self._under_way[full] = _Made(key is not None, threading.current_thread())
        try:
            yield full
        except GeneratorExit:
            # Left half-way by its caller, who goes on: what comes next is another call.
            raise
        except BaseException:
            if key is None:
                # A call that failed and is made again is the same call, or a replay would count them otherwise. Of its
                # own step: one that is left open may fail in the next.
                with self._lock:
                    ordinals[name] -= 1
            raise
        finally:
            if not can_be_left:
                with self._lock:
                    self._under_way.pop(full, None)
                    self._ended.notify_all()

    def _ordinal(self, name: str, caller: int | None) -> str:
        if self.are_needed:
            raise InvalidArgument("calls in on_resume need keys, or they would be taken for the block's; pass key=")
        is_another = None not in (self._caller, caller) and self._caller != caller
        if is_another or any(not made.has_key for made in self._under_way.values()):
            raise InvalidArgument(BESIDE)
        self._caller = self._caller if caller is None else caller
        ordinal = self._ordinals[name] = self._ordinals.get(name, 0) + 1
        return f"{name}#{ordinal}"

    def _require_open(self) -> None:
        if self._closed is not None:
            raise InvalidArgument(self._closed)

    def _require_none_under_way(self, what: str) -> None:
        if self._under_way:
            raise InvalidArgument(f"{what} while calls are under way in it; wait for their results")
