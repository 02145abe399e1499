"""Tools: functions that act on the world, and what to do when nobody knows whether one did."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, get_args, overload

import msgspec

from holdfast.errors import InvalidArgument, NotFound
from holdfast.runs.drivers import is_async

Effect = Literal["read", "idempotent", "irreversible"]
InDoubt = Literal["rerun", "probe", "ask", "give_up"]

_ATTRIBUTE = "__holdfast_tool__"
F = TypeVar("F", bound=Callable[..., Any])


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function and what was declared about it. `not_done` are errors that say that nothing happened.

    `retry` is how often a call that failed, or is in doubt, is made again before anybody hears of it.
    """

    name: str
    function: Callable[..., Any]
    effect: Effect
    in_doubt: InDoubt
    probe: Callable[..., Any] | None
    not_done: tuple[type[BaseException], ...]
    retry: int
    timeout: float | None
    undo: Callable[..., Any] | None
    takes_key: bool
    max_age: float | None = None

    def check(self, given: dict[str, Any]) -> None:
        """InvalidArgument if the function does not take these arguments. Found out by calling it, it would be doubt."""
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):
            return  # a builtin that does not say
        try:
            signature.bind(**({**given, "idempotency_key": ""} if self.takes_key else given))
        except TypeError as error:
            raise InvalidArgument(f"{self.name} does not take these arguments: {error}; nothing was done") from error


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    effect: Effect = "irreversible",
    in_doubt: InDoubt | None = None,
    probe: Callable[..., Any] | None = None,
    not_done: tuple[type[BaseException], ...] = (),
    retry: int | None = None,
    timeout: float | None = None,
    undo: Callable[..., Any] | None = None,
    name: str | None = None,
    max_age: float | None = None,
) -> Callable[[F], F]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: Effect = "irreversible",
    in_doubt: InDoubt | None = None,
    probe: Callable[..., Any] | None = None,
    not_done: tuple[type[BaseException], ...] = (),
    retry: int | None = None,
    timeout: float | None = None,
    undo: Callable[..., Any] | None = None,
    name: str | None = None,
    max_age: float | None = None,
) -> Any:
    """Declare what calling a function does to the world; the function itself stays as it is.

    `effect`: "read" changes nothing; "idempotent" may be called again with the same idempotency key; "irreversible",
    the default, must not happen twice. `in_doubt` says what to do when a call was begun and nobody knows how it ended:
    "rerun", "probe" (ask `probe`, which returns Happened, NotDone or None), "ask" (wait for `hf.settle`) or "give_up"
    (the model is told that the outcome is unknown). `not_done` are errors that say nothing happened. A function that
    takes `idempotency_key` is given one. `undo` takes back what a call did, when `hf.undo` is told to: it is called
    with the same arguments, and with `result` if it takes that. What a read gave is read again by a resumed run if it
    is older than `max_age` seconds and nothing was decided by it since. InvalidArgument for what cannot be kept to.

    >>> @tool(effect="read")
    ... def look_up(word: str) -> str:
    ...     return word.upper()
    >>> look_up("a")
    'A'
    """
    declare = functools.partial(
        _declared,
        effect=effect,
        in_doubt=in_doubt,
        probe=probe,
        not_done=not_done,
        retry=retry,
        timeout=timeout,
        undo=undo,
        name=name,
        max_age=max_age,
    )

    def mark(decorated: Callable[..., Any]) -> Callable[..., Any]:
        return _mark(decorated, declare(decorated))

    return mark if function is None else mark(function)


def tool_of(function: Callable[..., Any]) -> Tool:
    """What was declared about a function; one that nobody declared anything about is irreversible."""
    declared = getattr(function, _ATTRIBUTE, None)
    if isinstance(declared, Tool):
        # Not the function that was declared, where what is given is bound to an object or wraps it.
        return msgspec.structs.replace(declared, function=function)
    return _declared(
        function,
        effect="irreversible",
        in_doubt=None,
        probe=None,
        not_done=(),
        retry=None,
        timeout=None,
        undo=None,
        name=None,
    )


class Tools:
    """The tools of a handle or run, by name."""

    def __init__(self, functions: Iterable[Callable[..., Any]] = (), more: Tools | None = None) -> None:
        self._tools: dict[str, Tool] = dict(more._tools) if more is not None else {}
        own: set[str] = set()
        for function in functions:
            if not callable(function):
                raise InvalidArgument("tools must be functions, decorated with holdfast.tool or not")
            found = tool_of(function)
            if found.name in own:
                raise InvalidArgument(f"two tools are called {found.name!r}; give one of them a name of its own")
            own.add(found.name)
            self._tools[found.name] = found

    def find(self, named: str | Callable[..., Any]) -> Tool:
        if callable(named):
            return tool_of(named)
        if type(named) is not str:
            raise InvalidArgument("a tool is named by its name or its function")
        found = self._tools.get(named)
        if found is None:
            known = ", ".join(sorted(self._tools)) or "none"
            raise NotFound(f"there is no tool {named!r}; registered are: {known}")
        return found

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)


def _mark(function: Callable[..., Any], declared: Tool) -> Callable[..., Any]:
    try:
        setattr(function, _ATTRIBUTE, declared)
    except AttributeError:  # a bound method, a builtin: they take no attributes
        function = functools.partial(function)
        setattr(function, _ATTRIBUTE, declared)
    return function


def _declared(
    function: Callable[..., Any],
    *,
    effect: Effect,
    in_doubt: InDoubt | None,
    probe: Callable[..., Any] | None,
    not_done: tuple[type[BaseException], ...],
    retry: int | None,
    timeout: float | None,
    undo: Callable[..., Any] | None,
    name: str | None,
    max_age: float | None = None,
) -> Tool:
    if not callable(function):
        raise InvalidArgument("a tool is a function")
    if effect not in get_args(Effect):
        raise InvalidArgument('effect must be "read", "idempotent" or "irreversible"')
    if in_doubt is None:
        in_doubt = "rerun" if effect != "irreversible" else "probe" if probe is not None else "ask"
    if in_doubt not in get_args(InDoubt):
        raise InvalidArgument('in_doubt must be "rerun", "probe", "ask" or "give_up"')
    if probe is not None and not callable(probe):
        raise InvalidArgument("probe must be a function")
    if (in_doubt == "probe") != (probe is not None):
        raise InvalidArgument('in_doubt="probe" needs probe=, and probe= is used by nothing else')
    if retry is not None and (type(retry) is not int or retry < 0):
        raise InvalidArgument("retry must be a whole number, 0 or more")
    if retry and effect == "irreversible" and probe is None:
        raise InvalidArgument("an irreversible tool can be retried only if probe= can tell whether it happened")
    if type(not_done) is not tuple or not all(
        isinstance(error, type) and issubclass(error, BaseException) for error in not_done
    ):
        raise InvalidArgument("not_done must be a tuple of exception classes")
    if name is not None and (type(name) is not str or not name):
        raise InvalidArgument("a tool's name is a text that is not empty")
    called = name or str(getattr(function, "__name__", ""))
    if called == "model" or called.startswith("run.") or "/" in called or "#" in called:
        # Keys in the journal are made of names with these between them.
        raise InvalidArgument('a tool cannot be called "model" or "run.…", nor have / or # in its name; give it name=')
    if undo is not None and (effect == "read" or not callable(undo) or is_async(undo)):
        raise InvalidArgument("undo must be a function, not async, that takes back what a tool that acts has done")
    if max_age is not None:
        if effect != "read":
            raise InvalidArgument('only a tool that reads (effect="read") can be called again for its age: max_age=')
        if type(max_age) not in (int, float) or not 0 <= max_age < math.inf:
            raise InvalidArgument("max_age must be seconds, 0 or more")
    if timeout is not None and not (type(timeout) in (int, float) and 0 < timeout < math.inf):
        raise InvalidArgument("timeout must be seconds, more than 0")
    return Tool(
        name=name or str(getattr(function, "__name__", type(function).__name__)),
        function=function,
        effect=effect,
        in_doubt=in_doubt,
        probe=probe,
        not_done=not_done,
        retry=retry or 0,
        timeout=timeout,
        undo=undo,
        takes_key=takes_key(function),
        max_age=max_age,
    )


def takes_key(function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter for an idempotency key."""
    return takes(function, "idempotency_key")


def takes(function: Callable[..., Any], parameter: str) -> bool:
    """Whether a function has a parameter of this name."""
    try:
        return parameter in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def checked_arguments(args: object) -> dict[str, Any]:
    """The arguments of a tool call, by name."""
    if args is None:
        return {}
    if not isinstance(args, Mapping) or not all(type(key) is str for key in args):
        raise InvalidArgument("a tool's arguments are a dict of names and values")
    return dict(args)
