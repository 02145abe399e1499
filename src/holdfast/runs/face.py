"""What sync and async runs show of themselves alike."""

from __future__ import annotations

from typing import Any

from holdfast.records import Effect, Status
from holdfast.runs.core import RunCore
from holdfast.runs.entering import Claiming


class RunFace:
    """A run that this process holds, as its block sees it. `Run` and `AsyncRun` add the verbs."""

    def __init__(self, core: RunCore, claiming: Claiming) -> None:
        self._core = core
        self._claiming = claiming

    @property
    def state(self) -> Any:
        """The state, to be changed in place or replaced; stored at the boundaries."""
        return self._core.state

    @state.setter
    def state(self, state: Any) -> None:
        self._core.state = state

    @property
    def thread(self) -> str:
        """The name of its thread."""
        return self._core.thread

    @property
    def resumed(self) -> bool:
        """Whether the run was begun before."""
        return self._core.resumed

    @property
    def fresh(self) -> bool:
        """Whether nothing of this run, or this turn, is stored yet: put its input into the state then."""
        return self._core.fresh

    @property
    def attempt(self) -> int:
        """How often the run was claimed since its last checkpoint, this time included."""
        return self._core.attempt

    @property
    def age(self) -> float:
        """How many seconds old the checkpoint was from which the run goes on."""
        return self._core.age

    @property
    def status(self) -> Status:
        return self._core.status

    @property
    def result(self) -> Any:
        """What the run was finished with; None before."""
        return self._core.result

    @property
    def changed(self) -> tuple[Effect, ...]:
        """The recorded calls that were asked for with other arguments than they were made with."""
        return self._core.changed

    @property
    def step(self) -> int:
        """The step that is open."""
        return self._core.step
