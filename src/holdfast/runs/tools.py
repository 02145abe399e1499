"""The @tool decorator, the tools of a run by name, and the outcomes that settle a call in doubt."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, get_args, overload

import msgspec

from holdfast.codec.typed import StateType
from holdfast.errors import InvalidArgument, NotFound
from holdfast.runs.acts import ActIdentity, Identity
from holdfast.runs.arguments import checked_text, is_number
from holdfast.runs.drivers import is_async
from holdfast.runs.identity import escaped, identity_in, identity_of, short_name_of
from holdfast.runs.results import Declared, declared_result
from holdfast.runs.retry import Retry, checked_retry

EffectKind = Literal["read", "idempotent", "irreversible"]
InDoubt = Literal["rerun", "probe", "ask", "give_up"]
Errors = Literal["raise", "result"]

_ATTRIBUTE = "__holdfast_tool__"
_MARGIN_SHARE = 0.1  # of a timeout
_MARGIN_SECONDS = 1.0  # `_INTENT_SECONDS` of `tool_calls` adds the rest of the 1.5 seconds that the documentation names
# Identities of Holdfast's own entries. A function `wait` in a module `run` would collide.
_OWN = ("run.wait", "run.sleep", "run.child")
F = TypeVar("F", bound=Callable[..., Any])


class Happened(msgspec.Struct, frozen=True):
    """The call happened, with this result."""

    result: Any = None


class NotDone(msgspec.Struct, frozen=True):
    """The call did not happen. The tool may be called again."""


class NotYet(msgspec.Struct, frozen=True):
    """The call has not happened, and still can. The run waits, and the probe is called again after `seconds`."""

    seconds: float = 30.0

    def __post_init__(self) -> None:
        if not is_number(self.seconds, 0) or not self.seconds:
            raise InvalidArgument("NotYet: seconds must be a number of seconds, more than 0")


class GiveUp(msgspec.Struct, frozen=True):
    """The outcome stays unknown. The call returns {"outcome": "unknown", …}."""


Outcome: TypeAlias = Happened | NotDone | GiveUp


def is_outcome(value: object, kind: type[NotDone | GiveUp]) -> bool:
    """Whether a value is an outcome of this kind. The class itself is accepted instead of an instance."""
    return isinstance(value, kind) or value is kind


def unknown_outcome(tool: str) -> dict[str, str]:
    """The result of a call whose outcome was given up."""
    return {"outcome": "unknown", "tool": tool, "note": "It may or may not have happened. Do not assume either."}


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function and its declaration.

    `identity` is the declared name, or the qualified name of the function: the calls of a tool are found by it.
    `not_done` are the errors after which nothing was done. `retry` is how often and after which pauses a failed call is
    made again before its error is raised.
    """

    name: str
    identity: str
    function: Callable[..., Any]
    effect: EffectKind
    in_doubt: InDoubt
    probe: Callable[..., Any] | None
    not_done: tuple[type[BaseException], ...]
    retry: Retry | None
    timeout: float | None
    undo: Callable[..., Any] | None
    takes_key: bool
    max_age: float | None = None
    errors: Errors = "raise"
    probe_after: float | None = None
    result: StateType | None = None  # the type of its results, if they are not plain data
    signature: tuple[Callable[..., Any], inspect.Signature | None] | None = None  # of the function that was declared
    is_pending: bool = False  # whether a name in its return annotation was not defined when it was declared
    act: ActIdentity | None = None  # what makes two calls the same act
    in_thread: bool = False  # whether the async function calls a sync one in a thread, which cannot be stopped

    @property
    def bound(self) -> float | None:
        """The seconds after its start in which a call can act; None if the declaration does not limit them."""
        if self.probe_after is not None:
            return self.probe_after
        return None if self.timeout is None else self.timeout * (1 + _MARGIN_SHARE) + _MARGIN_SECONDS

    @property
    def needs_key(self) -> bool:
        """Whether it or its probe takes an idempotency key."""
        return self.takes_key or (self.probe is not None and takes_key(self.probe))

    @property
    def is_named(self) -> bool:
        """Whether its name was declared. A qualified name contains more than the name of the function."""
        is_escaped = "%" in self.identity and self.identity == escaped(self.name)
        return is_escaped or self.identity == self.name

    def resolved(self) -> Tool:
        """The tool with its result type. InvalidArgument if its results cannot be stored."""
        if not self.is_pending:
            return self
        return msgspec.structs.replace(self, result=declared_result(self.function, self.name).type, is_pending=False)

    def check(self, given: dict[str, Any]) -> None:
        """InvalidArgument if the function does not take these arguments.

        Checked before the call: a TypeError from inside the call would leave its outcome in doubt.
        """
        declared = self.signature
        is_known = declared is not None and declared[0] is self.function
        signature = declared[1] if declared is not None and is_known else _signature_of(self.function)
        if signature is None:
            return
        try:
            signature.bind(**({**given, "idempotency_key": ""} if self.takes_key else given))
        except TypeError as error:
            raise InvalidArgument(f"{self.name} does not take these arguments: {error}; it was not called") from error


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    effect: EffectKind = "irreversible",
    in_doubt: InDoubt | None = None,
    probe: Callable[..., Any] | None = None,
    not_done: tuple[type[BaseException], ...] = (),
    retry: Retry | None = None,
    timeout: float | None = None,
    undo: Callable[..., Any] | None = None,
    name: str | None = None,
    max_age: float | None = None,
    errors: Errors = "raise",
    probe_after: float | None = None,
    identity: Identity | None = None,
) -> Callable[[F], F]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: EffectKind = "irreversible",
    in_doubt: InDoubt | None = None,
    probe: Callable[..., Any] | None = None,
    not_done: tuple[type[BaseException], ...] = (),
    retry: Retry | None = None,
    timeout: float | None = None,
    undo: Callable[..., Any] | None = None,
    name: str | None = None,
    max_age: float | None = None,
    errors: Errors = "raise",
    probe_after: float | None = None,
    identity: Identity | None = None,
) -> Any:
    """Declare what a call of the function does. The function itself is not changed.

    - `effect`: the effect kind. "read" changes nothing. "idempotent" may be called again with the same idempotency key.
      "irreversible", the default, must not happen twice.
    - `in_doubt`: what to do when a call was started and its outcome is unknown. "rerun" calls the tool again. "probe"
      calls `probe`, which returns Happened, NotDone, NotYet, GiveUp or None. "ask" waits for `hf.settle`. "give_up"
      returns {"outcome": "unknown", …}.
    - `not_done`: errors after which nothing was done. `ToolNotDone` is always one.
    - `retry`: a `Retry`: how often and after which pauses a failed call is made again before its error is raised. An
      idempotent call is made again with the same idempotency key. An irreversible call is made again only after
      `ToolNotDone`, an error of `not_done`, or NotDone from its probe.
    - `timeout`: after so many seconds the run stops waiting for a call, and its outcome is unknown. A call in doubt is
      not made again before this time and a margin have passed since its start. Without it, a person is asked about an
      irreversible call in doubt, unless `in_doubt` is "rerun" and the function has ended.
    - `probe_after`: so many seconds after its start, a call can no longer act, even if its process is alive. Before
      that, NotDone from the probe does not count. The default is `timeout` and a margin.
    - `undo`: a function that reverts a call, for `hf.undo`. It gets the same arguments, and `result` and
      `idempotency_key` if it has such parameters.
    - `name`: the tool's name, instead of that of the function. Calls are found by it after the function is renamed.
    - `max_age`: a resumed run reads again if a recorded read is older than so many seconds, and since then the run has
      called no tool that acts and asked no question.
    - `identity`: what makes two calls of an irreversible tool the same act: a tuple of parameter names, or a function
      of the arguments. The act happens once, whichever run, turn, branch or thread of the namespace makes the call: a
      second call returns the recorded result.
    - `errors`: "result" makes an error that the function raises its result, `{"error": text}`, for agents that give
      errors to their model. Such a call is not in doubt. A timeout is not a result.

    A function with a parameter `idempotency_key` gets one. Its return annotation is the type of its results.
    InvalidArgument for a declaration that contradicts itself, and for an annotation of a type that cannot be stored.

    >>> @tool(effect="read")
    ... def look_up(word: str) -> str:
    ...     return word.upper()
    >>> look_up("a")
    'A'
    """

    def mark(decorated: Callable[..., Any]) -> Callable[..., Any]:
        declared = _declared(
            decorated,
            effect=effect,
            in_doubt=in_doubt,
            probe=probe,
            not_done=not_done,
            retry=retry,
            timeout=timeout,
            undo=undo,
            name=name,
            max_age=max_age,
            errors=errors,
            probe_after=probe_after,
            identity=identity,
        )
        return _mark(decorated, declared)

    return mark if function is None else mark(function)


def tool_of(function: Callable[..., Any], *, has_result: bool = True) -> Tool:
    """The declaration of a function. A function without one is irreversible.

    With `has_result=False`, its return annotation is ignored: something else records its results.
    """
    declared = getattr(function, _ATTRIBUTE, None)
    if isinstance(declared, Tool):
        if declared.function is function:
            return declared
        # A bound method or a wrapper carries the declaration of another function.
        identity = declared.identity if declared.is_named else identity_of(function)
        return msgspec.structs.replace(declared, function=function, identity=identity)
    return _declared(function, has_result=has_result)


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
                raise InvalidArgument(f"two tools are named {found.name!r}; pass name= to one of them")
            own.add(found.name)
            self._tools[found.name] = found

    def extended(self, functions: Iterable[Callable[..., Any]] | None) -> Tools:
        """These tools with others. A function of the same name replaces its tool."""
        return self if functions is None else Tools(functions, self)

    def find(self, named: str | Callable[..., Any]) -> Tool:
        if callable(named):
            return tool_of(named)
        if type(named) is not str:
            raise InvalidArgument("a tool must be a name or a function; nothing was called")
        found = self._tools.get(named)
        if found is None:
            known = ", ".join(sorted(self._tools)) or "none"
            raise NotFound(
                f"there is no tool {named!r}; the registered tools are: {known}. Nothing was called. Pass the "
                "function, or register it with tools=."
            )
        return found

    def identity_of(self, named: str | Callable[..., Any]) -> str:
        """The identity of a tool. A name that is not registered is its own."""
        if callable(named):
            return tool_of(named).identity
        found = self._tools.get(named)
        return named if found is None else found.identity

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def of(self, name: str, key: str) -> Tool | None:
        """The tool that made the call of a journal entry; None if it is not registered, or another one has its name."""
        found = self._tools.get(name)
        return found if found is not None and found.identity == identity_in(key) else None


def _mark(function: Callable[..., Any], declared: Tool) -> Callable[..., Any]:
    try:
        setattr(function, _ATTRIBUTE, declared)
    except AttributeError:  # a bound method or a builtin takes no attributes
        function = functools.partial(function)
        setattr(function, _ATTRIBUTE, declared)
    return function


def _declared(
    function: Callable[..., Any],
    *,
    effect: EffectKind = "irreversible",
    in_doubt: InDoubt | None = None,
    probe: Callable[..., Any] | None = None,
    not_done: tuple[type[BaseException], ...] = (),
    retry: Retry | None = None,
    timeout: float | None = None,
    undo: Callable[..., Any] | None = None,
    name: str | None = None,
    max_age: float | None = None,
    errors: Errors = "raise",
    probe_after: float | None = None,
    has_result: bool = True,
    identity: Identity | None = None,
) -> Tool:
    if not callable(function):
        raise InvalidArgument("a tool must be a function")
    if effect not in get_args(EffectKind):
        raise InvalidArgument('effect must be "read", "idempotent" or "irreversible"')
    if in_doubt is None:
        in_doubt = "rerun" if effect != "irreversible" else "probe" if probe is not None else "ask"
    if in_doubt not in get_args(InDoubt):
        raise InvalidArgument('in_doubt must be "rerun", "probe", "ask" or "give_up"')
    if probe is not None and not callable(probe):
        raise InvalidArgument("probe must be a function")
    if in_doubt == "probe" and probe is None:
        raise InvalidArgument('in_doubt="probe" needs probe=, a function that finds out whether a call happened')
    if probe is not None and in_doubt != "probe":
        raise InvalidArgument(f'a tool with probe= needs in_doubt="probe", and in_doubt is "{in_doubt}"')
    checked_retry(retry)
    if type(not_done) is not tuple or not all(
        isinstance(error, type) and issubclass(error, BaseException) for error in not_done
    ):
        raise InvalidArgument("not_done must be a tuple of exception classes")
    if name is not None:
        checked_text("a tool's name", name)
    called = name or short_name_of(function)
    if identity is not None and effect != "irreversible":
        raise InvalidArgument('identity= needs effect="irreversible"')
    act = None if identity is None else ActIdentity.of(identity, function)
    qualified = identity_of(function) if name is None else escaped(name)
    if qualified in _OWN or qualified.partition(" ")[0] == "model":
        raise InvalidArgument(f"a tool cannot have the name {qualified!r}, which Holdfast uses; pass name=")
    if undo is not None and (effect == "read" or not callable(undo) or is_async(undo)):
        raise InvalidArgument("undo must be a function that is not async, of a tool that is not a read")
    if max_age is not None:
        if effect != "read":
            raise InvalidArgument('max_age= needs effect="read"')
        if not is_number(max_age, 0):
            raise InvalidArgument("max_age must be a number of seconds, 0 or more")
    if errors not in get_args(Errors):
        raise InvalidArgument('errors must be "raise" or "result"')
    if errors == "result" and retry and effect == "irreversible":
        raise InvalidArgument(
            'retry= of an irreversible tool needs errors="raise": a call with a result is not made again'
        )
    if timeout is not None and not (is_number(timeout, 0) and timeout):
        raise InvalidArgument("timeout must be a number of seconds, more than 0")
    if probe_after is not None:
        if probe is None:
            raise InvalidArgument("probe_after= needs probe=")
        if not is_number(probe_after, timeout or 0) or probe_after == (timeout or 0):
            raise InvalidArgument("probe_after must be a number of seconds, more than 0 and more than timeout")
    result = declared_result(function, called) if has_result else Declared()
    return Tool(
        name=called,
        identity=qualified,
        function=function,
        effect=effect,
        in_doubt=in_doubt,
        probe=probe,
        not_done=not_done,
        retry=retry,
        timeout=timeout,
        undo=undo,
        takes_key=takes_key(function),
        signature=(function, _signature_of(function)),
        max_age=max_age,
        errors=errors,
        probe_after=probe_after,
        result=result.type,
        is_pending=result.is_pending,
        act=act,
    )


def takes_key(function: Callable[..., Any]) -> bool:
    """Whether a function has the parameter `idempotency_key`."""
    return takes(function, "idempotency_key")


def takes(function: Callable[..., Any], parameter: str) -> bool:
    """Whether a function has a parameter of this name."""
    signature = _signature_of(function)
    return signature is not None and parameter in signature.parameters


def _signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of a function; None if it is a builtin without one."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def checked_arguments(args: object) -> dict[str, Any]:
    """The arguments of a tool call, by name."""
    if args is None:
        return {}
    if not isinstance(args, Mapping) or not set(map(type, args)) <= {str}:
        raise InvalidArgument("the arguments of a tool must be a dict of names and values; nothing was called")
    return dict(args)
