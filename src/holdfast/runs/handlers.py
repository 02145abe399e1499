"""Handlers: what a function that runs runs may declare where it is written, for every worker that has it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from holdfast.errors import InvalidArgument
from holdfast.runs.guards import Guard, checked_guards

_ATTRIBUTE = "__holdfast_guards__"
F = TypeVar("F", bound=Callable[..., Any])


def handler(*, guards: Iterable[Guard]) -> Callable[[F], F]:
    """Declare what the runs of a handler are held to; the function itself stays as it is.

    In a worker, its `guards` stand in for those of their kind that the worker has for all. InvalidArgument as for the
    guards of a run.

    >>> from holdfast import Budget
    >>> @handler(guards=[Budget(steps=20)])
    ... def shopper(run): ...
    """
    checked = checked_guards(guards)

    def declare(function: F) -> F:
        if not callable(function):
            raise InvalidArgument("a handler is a function of a run")
        try:
            setattr(function, _ATTRIBUTE, checked)
        except AttributeError as error:  # a bound method, a builtin
            raise InvalidArgument("nothing can be declared about this; write a function around it") from error
        return function

    return declare


def guards_of(function: Callable[..., Any], common: tuple[Guard, ...]) -> tuple[Guard, ...]:
    """The guards of a handler's runs: its own, and of the kinds that it has not, the common ones."""
    while isinstance(function, functools.partial) and not hasattr(function, _ATTRIBUTE):
        function = function.func
    own: tuple[Guard, ...] = getattr(function, _ATTRIBUTE, ())
    kinds = {type(guard) for guard in own}
    return (*own, *(guard for guard in common if type(guard) not in kinds))
