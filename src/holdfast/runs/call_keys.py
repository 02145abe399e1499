"""The keys of calls: those without a key get one, and two calls with one key are not made at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from holdfast.errors import InvalidArgument
from holdfast.runs.identity import KEY_SEPARATOR, Started, identity_in, shown, unkeyed
from holdfast.runs.waits import SLEEP, WAIT
from holdfast.signals import shield

MAIN_CALLER: Final = "main"  # the Python thread or task that entered the block of the run
FRAMEWORK_CALLER: Final = "framework"  # an agent framework: it makes the calls of one function in order
CHILD: Final = "run.child"  # in the keys of children
_NAMED: Final = (WAIT, CHILD)  # the calls whose name is their key
_POLL_SECONDS: Final = 0.05
_OUTSIDE: Final = " outside"  # after the key of a call outside of steps, where calls are counted
_UNKEYED_IN_HOOK: Final = (
    "a call in on_resume needs key=, to distinguish it from the calls of the block; nothing was called. "
    "run.sleep takes no key=: sleep in the block."
)
_SLEEPS_ALREADY: Final = (
    "the run sleeps already, in another Python thread or task; this sleep was not started. Sleep once at a time."
)


class CallKeys:
    """The keys of the open step, and its calls that are under way."""

    def __init__(self, outside: dict[str, int]) -> None:
        """`outside` gets `Entry.outside` of the calls outside of steps, by key."""
        self.are_needed = False  # whether calls without keys are refused
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._counts: dict[str, int] = {}  # calls without keys in the open step, by function and arguments
        self._callers: dict[
            str, object
        ] = {}  # the Python thread or task that made these calls, by function and arguments
        self._exact: dict[str, bytes] = {}  # the digest of their arguments before redaction, by function and arguments
        self._under_way: dict[str, threading.Thread] = {}  # by key: the Python threads of the calls that are under way
        self._closed: str | None = None
        self._depth = 1  # how many loops of steps the program is in. Before `start_program`, calls count as in one
        self._loops = 0  # how many loops of steps the program has entered
        self._closed_steps = 0  # how many steps the program has closed
        self._outside = outside
        # By key: how many steps were closed, and loops entered, before its last use outside of steps.
        self._uses: dict[str, tuple[int, int]] = {}
        self._models: dict[str, bool] = {}  # functions called without a key outside of steps: whether also after a loop

    # -- where the program is -------------------------------------------------------------------------------------

    @property
    def is_outside(self) -> bool:
        """Whether the program is outside of all loops of steps."""
        return not self._depth

    @property
    def is_before_loops(self) -> bool:
        """Whether the program has not entered a loop of steps yet."""
        return not self._depth and not self._loops

    @property
    def is_after_loops(self) -> bool:
        """Whether the program is outside of all loops of steps, and was in one."""
        return not self._depth and self._loops > 0

    def enter_loop(self, *, is_hook: bool = False) -> None:
        """Note that the program enters a loop of steps, or a hook, whose calls are part of the open step.

        InvalidArgument if a resume could not distinguish two model calls: one before the first loop, one between loops.
        """
        with self._lock:
            if not self._depth and not is_hook and self._loops:
                repeated = [name for name, is_after_loop in self._models.items() if is_after_loop]
                if repeated:
                    raise InvalidArgument(
                        f"{shown(repeated[0])} was called without a key before the first loop of run.steps() and "
                        "after it. If another loop follows, a resume could not tell these calls apart after a crash. "
                        "The loop was not entered. Pass key= to each of these calls."
                    )
            self._depth += 1
            self._loops += not is_hook

    def leave_loop(self) -> None:
        """Note that the program left the loop or the hook."""
        with self._lock:
            self._depth -= 1

    def note_model(self, identity: str) -> None:
        """Note a model call without a key outside of steps."""
        with self._lock:
            if not self._loops:
                self._models.setdefault(identity, False)
            elif identity in self._models:
                self._models[identity] = True

    def _note_place(self, full: str, identity: str) -> Callable[[], None]:
        """Note whether a call is outside of steps, and how often its key was used there. Return a function to undo it.

        InvalidArgument if the same call was made before the last loop.
        """
        if self._depth or (identity == SLEEP and self._loops):  # a sleep between loops may be that of another round
            self._outside.pop(full, None)
            return _nothing
        before, number = self._uses.get(full), self._outside.get(full, 0)
        if before is not None and before[1] != self._loops:
            is_named = identity in _NAMED
            same = "name" if is_named else "key, or without a key and with the same arguments or identity"
            raise InvalidArgument(
                f"{shown(identity)} was called outside of run.steps() before, with the same {same}, and a loop has run "
                "since. After a crash a resume could not tell these calls apart; nothing was called. Pass another "
                f"{'name' if is_named else 'key='}, or make the call inside the loop."
            )
        self._uses[full] = (self._closed_steps, self._loops)
        self._outside[full] = max(number, 1) if before is None or before[0] == self._closed_steps else number + 1

        def undo_place() -> None:
            self._outside[full] = number
            self._uses.pop(full)
            if before is not None:
                self._uses[full] = before

        return undo_place

    # -- steps ----------------------------------------------------------------------------------------------------

    def open_step(self, *, is_same: bool = False) -> None:
        """Open the next step. With `is_same`, a save has left the step open, and its own calls still count."""
        with self._lock:
            inside = [at for at in self._counts if not at.endswith(_OUTSIDE)] if is_same else []
            self._counts = {at: self._counts[at] for at in inside}
            self._callers = {at: self._callers[at] for at in inside}
            self._exact = {at: self._exact[at] for at in inside if at in self._exact}
            self._closed = None
            self._closed_steps += 1

    def close_step(self) -> None:
        """Refuse calls until the next step is opened or this one is reopened.

        InvalidArgument if calls are under way: a checkpoint would close them without their results.
        """
        with self._lock:
            if self._closed is not None:
                raise InvalidArgument(self._closed)
            self._require_none_under_way("a step cannot be closed")
            self._closed = "the step is being closed; nothing was called. Make the call when the next step is open."

    def reopen_step(self) -> None:
        """Accept calls again: the step could not be closed."""
        with self._lock:
            self._closed = None

    def require_none_under_way(self, what: str, except_prefix: str) -> None:
        """InvalidArgument if calls are under way whose keys do not start with `except_prefix`."""
        with self._lock:
            self._require_none_under_way(what, except_prefix)

    def end(self) -> None:
        """Refuse further calls because the block ends, and wait for those of other Python threads."""
        with self._lock:
            self._closed = "the block of this run is ending; nothing was called. Make all calls before it ends."
            while self._is_in_another_thread():
                with shield.lifted():
                    self._ended.wait(_POLL_SECONDS)

    def _is_in_another_thread(self) -> bool:
        here = threading.current_thread()
        return any(thread is not here and thread.is_alive() for thread in self._under_way.values())

    def start(
        self, identity: str, key: str | None, digest: bytes, exact: bytes, caller: object, *, can_be_left: bool
    ) -> tuple[Started, Callable[[], None]]:
        """Start a call. Return its key, and a function that undoes the start.

        InvalidArgument if a replay could not distinguish the call from another one.

        `digest` is of the arguments as they are recorded. `exact` is of the arguments before redaction, if that changed
        them. `caller` is the Python thread or task that makes the call, or MAIN_CALLER; None if the order of calls does
        not matter. `can_be_left` is for streams: their end may not be reported, so they do not count as under way.
        """
        if key is not None and (type(key) is not str or not key):
            raise InvalidArgument("the key of a call must be a non-empty string; nothing was called")
        with self._lock:
            if self._closed is not None:
                raise InvalidArgument(self._closed)
            is_alone = caller in (MAIN_CALLER, FRAMEWORK_CALLER) and not self._under_way
            if (
                caller is FRAMEWORK_CALLER
                and key is None
                and any(identity_in(each) == identity for each in self._under_way)
            ):
                raise InvalidArgument(
                    f"two calls of {shown(identity)} are made at the same time, and after a crash a resume could not "
                    "tell them apart; the second was not made. Put each of them into `with run.scope(name):`."
                )
            undo_count = _nothing
            full = f"{identity}{KEY_SEPARATOR}{key}"
            if key is None:
                full, undo_count = self._numbered_key(identity, digest, exact, caller)
            if full in self._under_way:
                what, parameter = ("name", "name") if identity in _NAMED else ("key", "key=")
                raise InvalidArgument(
                    f"{shown(identity)} with the same {what} is under way; this call was not made. "
                    f"Give it another {parameter}."
                )
            undo_place = self._note_place(full, identity)

            def undo_start() -> None:
                undo_count()
                undo_place()

            if not can_be_left:
                self._under_way[full] = threading.current_thread()
            return Started(full, key, is_alone, self._under_way.keys()), undo_start

    def end_call(self, full: str) -> None:
        """Note that a call is over."""
        with self._lock:
            self._under_way.pop(full, None)
            self._ended.notify_all()

    def _numbered_key(
        self, identity: str, digest: bytes, exact: bytes, caller: object
    ) -> tuple[str, Callable[[], None]]:
        """Make a key for a call without one. Equal calls are numbered, so one caller must make all of them in order."""
        if self.are_needed:
            raise InvalidArgument(_UNKEYED_IN_HOOK)
        first = unkeyed(identity, digest, 1)
        counts = self._counts
        count_key = first if self._depth else f"{first}{_OUTSIDE}"  # counted apart from those in loops
        count = counts.get(count_key, 0)
        is_under_way = count and unkeyed(identity, digest, count) in self._under_way
        if is_under_way or self._callers.setdefault(count_key, caller) is not caller:
            if identity == SLEEP:
                raise InvalidArgument(_SLEEPS_ALREADY)
            raise InvalidArgument(
                f"{shown(identity)} is called with the same arguments by several Python threads or tasks, and after a "
                "crash a replay could not tell these calls apart; nothing was called. Pass key= to each of them."
            )
        all_exact = self._exact
        if all_exact.setdefault(count_key, exact) != exact:
            raise InvalidArgument(
                f"{shown(identity)} is called without a key in this step, with arguments that differ only in what "
                "redaction removes. After a crash a resume could not tell these calls apart; nothing was called. Pass "
                "key=, made of something that is not secret, to each of them."
            )
        counts[count_key] = count + 1

        def undo_count() -> None:
            with self._lock:
                counts[count_key] -= 1
                if not counts[count_key]:
                    all_exact.pop(count_key, None)

        return unkeyed(identity, digest, count + 1), undo_count

    def _require_none_under_way(self, what: str, except_prefix: str | None = None) -> None:
        if any(except_prefix is None or not key.startswith(except_prefix) for key in self._under_way):
            raise InvalidArgument(f"{what} while calls are under way; nothing was changed. Wait for their results.")


def _nothing() -> None: ...
