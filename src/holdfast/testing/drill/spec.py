"""The drill as it is asked for: which agent, with what in place of its tools, and what to look at."""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.errors import InvalidArgument
from holdfast.policy import Policy
from holdfast.runs.tools import Tools, tool_of

Watched = str | os.PathLike[str] | Callable[[], Any]


class Drill(msgspec.Struct, frozen=True, kw_only=True):
    """An agent and how to drill it, for `holdfast drill module:attribute` and `crash_everywhere`, which says the rest.

    InvalidArgument for what cannot be done.
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

    def __post_init__(self) -> None:
        if not callable(self.handler):
            raise InvalidArgument("a drill needs a handler: a function of a run")
        _check_handler(self.handler, self.name)
        if self.start is None:
            raise InvalidArgument("a drill needs a start: the state that the run begins with")
        for name in ("tools", "fakes", "watch"):
            if isinstance(getattr(self, name), str | bytes) or not isinstance(getattr(self, name), Iterable):
                raise InvalidArgument(f"{name} must be a list")
        Tools(self.tools)
        if not all(callable(fake) for fake in self.stand_ins().values()):
            raise InvalidArgument("fakes must be functions, by the names of the tools they stand in for")
        if not all(callable(each) or isinstance(each, str | os.PathLike) for each in self.watch):
            raise InvalidArgument("watch takes paths, and functions that return what they see")
        if self.setup is not None and not callable(self.setup):
            raise InvalidArgument("setup must be a function without arguments")
        if not isinstance(self.answers, Mapping):
            raise InvalidArgument("answers must be a dict of the names of questions and what they are answered")
        if self.points is not None and (type(self.points) is not int or self.points < 1):
            raise InvalidArgument("points must be a whole number, 1 or more")
        if type(self.timeout) not in (int, float) or not 0 < self.timeout < math.inf:
            raise InvalidArgument("timeout must be seconds, more than 0")

    def stand_ins(self) -> dict[str, Callable[..., Any]]:
        """What is called in place of tools, by their names."""
        if isinstance(self.fakes, Mapping):
            return dict(self.fakes)
        if not all(callable(fake) for fake in self.fakes):
            raise InvalidArgument("fakes must be functions, by the names of the tools they stand in for")
        Tools(self.fakes)  # refuses two of one name
        return {tool_of(fake).name: fake for fake in self.fakes}

    def declared(self) -> list[Callable[..., Any]]:
        """The tools that the run finds by name: the agent's own, else what stands in for them."""
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
        raise InvalidArgument(f"{name} yields, and a handler must not: it is called with a run, and returns its result")
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return  # a builtin that does not say
    try:
        signature.bind(None)
    except TypeError:
        raise InvalidArgument(f"{name} takes {signature}; a handler is called with one argument, the run") from None
