"""The block of a run: claims it when it is entered, gives it back when it is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from holdfast.errors import InvalidArgument, LeaseHeld
from holdfast.runs.core import RunCore, waits_in_hook
from holdfast.runs.entering import Claiming
from holdfast.runs.invoking import is_async
from holdfast.runs.run import Run
from holdfast.runs.signals import termination

_POLL_SECONDS: Final = 0.05


class RunBlock:
    """What `hf.run(…)` gives: `with` it, the run is claimed, and given back at the end."""

    def __init__(self, claiming: Claiming) -> None:
        if claiming.on_resume is not None and is_async(claiming.on_resume):
            raise InvalidArgument("a sync run cannot await its on_resume; use hf.aio.run")
        self._claiming = claiming
        self._core: RunCore | None = None

    def __enter__(self) -> Run:
        self._claiming.enter_once()
        termination.listen()  # before the run is claimed, or a signal in between would not give it back
        try:
            with self._claiming.observed():
                core = self._claimed_in_time()
        except BaseException as error:
            try:
                if self._core is not None:
                    self._core.leave(error)
            finally:
                termination.unlisten()
            raise
        run = Run(core, self._claiming)
        hook = self._claiming.on_resume
        if hook is not None and core.resumed and core.is_open:
            self._resume(run, hook)
        return run

    def _claimed_in_time(self) -> RunCore:
        """The run, claimed. A signal is heard between two tries: inside one it would be lost who has the run."""
        deadline = time.monotonic() + self._claiming.wait
        while True:
            try:
                with termination.deferred():
                    core = self._core = self._claiming.enter(can_await=False, wait=0)
                return core
            except LeaseHeld:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_POLL_SECONDS)

    def _resume(self, run: Run, hook: Callable[[Run], Any]) -> None:
        """Let the hook of a resumed run have it first. What it raises ends the run as it would in the block."""
        try:
            with run._core.hooking():
                hook(run)
        except BaseException as error:
            if self.__exit__(type(error), error, error.__traceback__):
                raise waits_in_hook(run.status) from None
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._core is None:
            return False
        try:
            self._core.end_calls()
            with termination.deferred():
                return self._core.leave(error)
        finally:
            try:
                termination.unlisten()
            finally:
                self._claiming.left()
