"""Load handlers, tools and functions that are named on the command line as "module:attribute"."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from holdfast.cli.terminal import did_you_mean
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.handle import Holdfast
from holdfast.runs.tools import Tools

Handlers = dict[str, Callable[[Any], Any]]

_FORM = 'write "module:attribute", like app:handlers'
_HANDLE = "hf"  # the name of the parameter that receives the handle


def load_application(named: str) -> Callable[[Holdfast], Handlers]:
    """Return a function that takes the handle and returns the named handlers.

    The name is that of a dict, or of a function that returns one. The function may have one parameter `hf`, the handle,
    which it can instrument, or to which it can add migrations. Everything else is loaded at once, before the store is
    opened: a mistake must not create an empty store. Raises InvalidArgument if there is no such attribute or it is
    something else, and HoldfastError, with the traceback, if the application's own code raises.
    """
    found = load(named)
    if isinstance(found, Mapping) or not callable(found):
        handlers = _checked(named, found)
        return lambda _: handlers
    if inspect.iscoroutinefunction(found):
        raise InvalidArgument(f"{named} is async; it must be a dict of handlers, or a sync function that returns one")
    required = _required(found)
    if required == [_HANDLE]:
        return lambda hf: _made(f"{named}({_HANDLE})", lambda: found(hf))
    if required:
        raise InvalidArgument(
            f"{named} is a function that takes ({', '.join(required)}); it must take no arguments, or one called "
            f"{_HANDLE}, and return a dict of handlers"
        )
    handlers = _made(f"{named}()", found)
    return lambda _: handlers


def _required(function: Callable[..., Any]) -> list[str]:
    """Return the parameters of a function that must be passed."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []  # a builtin without a signature
    return [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]


def _made(called: str, make: Callable[[], Any]) -> Handlers:
    return _checked(f"the result of {called}", _call(f"{called} failed", make))


def _checked(what: str, found: object) -> Handlers:
    wanted = "it must be a dict of handler names and functions"
    if not isinstance(found, Mapping):
        raise InvalidArgument(f"{what} is of type {type(found).__name__}; {wanted}")
    if not found:
        raise InvalidArgument(f"{what} is empty; {wanted}")
    for name, handler in found.items():
        if type(name) is not str or not callable(handler):
            raise InvalidArgument(f"{what} has {name!r}: {type(handler).__name__}; {wanted}")
    return dict(found)


def load_tools(named: str | None) -> list[Callable[..., Any]]:
    """Load the named tools: an iterable of functions with distinct names. Raises what `load_application` raises."""
    if named is None:
        return []
    found = load(named)
    if not isinstance(found, Iterable) or isinstance(found, str | bytes | Mapping):
        raise InvalidArgument(f"{named} is of type {type(found).__name__}; it must be a list of functions")
    functions = list(found)
    Tools(functions)
    return functions


def load_redaction(named: str | None) -> Callable[[str], str] | None:
    """Load the named redaction function. Raises InvalidArgument if it is not callable."""
    if named is None:
        return None
    found = load(named)
    if not callable(found):
        raise InvalidArgument(
            f"{named} is of type {type(found).__name__}; it must be a function that takes and returns a string"
        )
    return cast(Callable[[str], str], found)


def load(named: str) -> Any:
    """Return the attribute that "module:attribute" names. Modules in the current folder come first."""
    module, separator, path = named.partition(":")
    if module.endswith(".py") or "/" in module:
        meant = ".".join(part for part in module.removesuffix(".py").split("/") if part.strip("."))
        raise InvalidArgument(f"{named!r} is a file; write its module: {meant}:{path or 'handlers'}")
    if not separator or not all([*module.split("."), *path.split(".")]):
        raise InvalidArgument(f"{named!r} does not name an attribute of a module; {_FORM}")
    found = _module(module)
    at = f"module {module!r}"
    names = path.split(".")
    for number, name in enumerate(names, 1):
        try:
            found = getattr(found, name)
        except AttributeError:
            known = [each for each in dir(found) if not each.startswith("__")]
            raise InvalidArgument(f"{at} has no attribute {name!r}{did_you_mean(name, known)}") from None
        at = f"{module}:{'.'.join(names[:number])}"
    return found


def _module(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path[:1]:
        # sys.path[0] is the folder of the `holdfast` script; the application is in the current folder.
        sys.path.insert(0, here)
    try:
        # Safe to import: the name comes from the command line, never from the store.
        return _call(f"importing {name} failed", lambda: importlib.import_module(name))
    except HoldfastError as failure:
        cause = failure.__cause__
        if not isinstance(cause, ModuleNotFoundError) or _own_frames(cause):
            raise
        first = name.partition(".")[0]
        known = [found.name for found in pkgutil.iter_modules([here])]
        hint = did_you_mean(first, known) if first not in known else ""
        raise InvalidArgument(f"no module {cause.name or name!r} in {here} or installed{hint}") from None


def _call(failed: str, function: Callable[[], Any]) -> Any:
    """Call the application's code. What it raises becomes a HoldfastError with the application's traceback."""
    try:
        return function()
    except (Exception, SystemExit) as error:
        shown = traceback.TracebackException.from_exception(error)
        shown.stack = traceback.StackSummary.from_list(_own_frames(error))
        raise HoldfastError(f"{failed}:\n{''.join(shown.format()).rstrip()}") from error


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of an error's traceback, without those of the import system and of this module."""
    machinery = (__file__, importlib.__file__)
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in machinery and not frame.filename.startswith("<frozen importlib")
    ]
