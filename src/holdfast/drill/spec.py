"""The definition of a drill: the agent, the fakes for its tools, and what to watch."""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.drill.faults import FAULTS, Fault
from holdfast.errors import InvalidArgument
from holdfast.policy import Policy
from holdfast.runs.tools import Tools, tool_of

Watched = str | os.PathLike[str] | Callable[[], Any]


class Drill(msgspec.Struct, frozen=True, kw_only=True):
    """An agent and how to drill it, for `holdfast drill module:attribute`. `crash_everywhere` documents the fields.

    Raises InvalidArgument if the drill cannot be done as defined.
    """

    handler: Callable[..., Any]
    start: Any
    tools: Sequence[Callable[..., Any]] = ()
    fakes: Sequence[Callable[..., Any]] | Mapping[str, Callable[..., Any]] = ()
    live: bool = False
    recorded: bool = False
    watch: Sequence[Watched] = ()
    setup: Callable[[], object] | None = None
    answers: Mapping[str, Any] = {}
    policy: Policy | None = None
    points: int | None = None
    timeout: float = 60.0
    faults: Sequence[Fault] = ()

    def __post_init__(self) -> None:
        if not callable(self.handler):
            raise InvalidArgument("a drill needs a handler: a function that takes a run")
        _check_handler(self.handler, self.name)
        if self.start is None:
            raise InvalidArgument("a drill needs start=, the state that the run starts with")
        for name in ("tools", "fakes", "watch", "faults"):
            if isinstance(getattr(self, name), str | bytes) or not isinstance(getattr(self, name), Iterable):
                raise InvalidArgument(f"{name} must be a list")
        Tools(self.tools)
        if not all(callable(fake) for fake in self.stand_ins().values()):
            raise InvalidArgument("fakes must be functions, by the names of the tools they replace")
        if not all(callable(each) or isinstance(each, str | os.PathLike) for each in self.watch):
            raise InvalidArgument("watch must be paths, or functions that return what to compare")
        if not set(self.faults) <= set(FAULTS):
            raise InvalidArgument(f"faults must be a list of {', '.join(FAULTS)}")
        if self.setup is not None and not callable(self.setup):
            raise InvalidArgument("setup must be a function without arguments")
        if not isinstance(self.answers, Mapping):
            raise InvalidArgument("answers must be a dict from the names of questions to their answers")
        if self.points is not None and (type(self.points) is not int or self.points < 1):
            raise InvalidArgument("points must be a whole number, 1 or more")
        if type(self.timeout) not in (int, float) or not 0 < self.timeout < math.inf:
            raise InvalidArgument("timeout must be a number of seconds greater than 0")

    def stand_ins(self) -> dict[str, Callable[..., Any]]:
        """The fakes by the names of the tools they replace."""
        if isinstance(self.fakes, Mapping):
            return dict(self.fakes)
        if not all(callable(fake) for fake in self.fakes):
            raise InvalidArgument("fakes must be functions, by the names of the tools they replace")
        Tools(self.fakes)  # rejects two with one name
        return {tool_of(fake).name: fake for fake in self.fakes}

    def declared(self) -> list[Callable[..., Any]]:
        """The tools that the run finds by name: the agent's own, or their fakes."""
        own = {tool_of(function).name for function in self.tools}
        fakes = [fake for name, fake in self.stand_ins().items() if name not in own and tool_of(fake).name == name]
        return [*self.tools, *fakes]

    @property
    def name(self) -> str:
        handler = self.handler
        while isinstance(handler, functools.partial):
            handler = handler.func
        return str(getattr(handler, "__qualname__", type(handler).__name__))


def _check_handler(handler: Callable[..., Any], name: str) -> None:
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise InvalidArgument(f"{name} yields, but a handler must not: it takes a run and returns a result")
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return  # a builtin without a signature
    try:
        signature.bind(None)
    except TypeError:
        raise InvalidArgument(f"{name} takes {signature}, but a handler is called with one argument, the run") from None
