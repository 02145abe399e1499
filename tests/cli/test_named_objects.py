"""What "module:attribute" stands for, and what is said when it stands for nothing that can be run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import HoldfastError, InvalidArgument
from holdfast.cli.named_objects import load_application, load_tools
from tests.cases import for_each

APP = """
def shopper(run): ...
async def later(run): ...
def look_up(item): ...

handlers = {"shopper": shopper}
empty = {}
numbers = {"shopper": 3}
unnamed = {1: shopper}
awaited = {"later": later}
tools = [look_up]
twins = [look_up, look_up]
words = ["look_up"]

def make():
    return handlers

def make_with(hf):
    hf.seen = "by the application"
    return handlers

def make_nothing_with(hf):
    return None

async def make_later_with(hf): ...

def fail_with(hf):
    raise KeyError("no such key")

def make_nothing():
    return None

async def make_later():
    return handlers

def fail():
    raise KeyError("no such key")

class Agents:
    handlers = handlers
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A current folder with an application, that nothing of is left imported."""
    (tmp_path / "hf_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def handlers_of(named: str) -> Any:
    unused: Any = None
    return load_application(named)(unused)


def told(named: str, kind: type[HoldfastError] = InvalidArgument) -> str:
    with pytest.raises(HoldfastError) as raised:
        load_application(named)
    assert type(raised.value) is kind
    return str(raised.value)


@pytest.mark.parametrize("named", ["hf_app:handlers", "hf_app:make", "hf_app:Agents.handlers"])
def test_handlers_are_a_dict_or_what_a_function_returns(named: str) -> None:
    assert list(handlers_of(named)) == ["shopper"]


def test_handlers_may_be_async() -> None:
    assert list(handlers_of("hf_app:awaited")) == ["later"]


class Handle:
    """What an application is given."""

    seen = ""


def test_a_function_of_the_handle_is_given_it() -> None:
    handle: Any = Handle()
    application = load_application("hf_app:make_with")
    assert handle.seen == "", "not before there is one"
    assert (list(application(handle)), handle.seen) == (["shopper"], "by the application")
    assert list(load_application("hf_app:make")(handle)) == ["shopper"]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("hf_app:make_nothing_with", "the result of hf_app:make_nothing_with(hf) is of type NoneType"),
        ("hf_app:fail_with", "hf_app:fail_with(hf) failed:\nTraceback"),
    ],
)
def test_a_function_of_the_handle_that_gives_no_handlers(named: str, message: str) -> None:
    application = load_application(named)
    handle: Any = Handle()
    with pytest.raises(HoldfastError) as raised:
        application(handle)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("hf_app:make_later_with", "hf_app:make_later_with is async; it must be a dict of handlers"),
        ("hf_app:shopper", "hf_app:shopper is a function that takes (run); it must take no arguments"),
        ("hf_app:empty", "hf_app:empty is empty; it must be a dict"),
    ],
)
def test_what_needs_no_handle_is_refused_before_there_is_one(named: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        load_application(named)
    assert str(raised.value).startswith(message)


def test_the_current_folder_comes_first(tmp_path: Path) -> None:
    (tmp_path / "colorsys.py").write_text("handlers = {'mine': print}")
    sys.modules.pop("colorsys", None)
    assert list(handlers_of("colorsys:handlers")) == ["mine"]


def test_a_module_of_a_package() -> None:
    Path("hf_package").mkdir()
    Path("hf_package/agents.py").write_text("handlers = {'h': print}")
    assert list(handlers_of("hf_package.agents:handlers")) == ["h"]
    assert told("hf_package.agent:handlers").startswith("no module 'hf_package.agent' in ")


@for_each(
    ("named", "message"),
    [
        ("hf_app", "'hf_app' does not name an attribute of a module; write \"module:attribute\", like app:handlers"),
        ("hf_app:", "'hf_app:' does not name an attribute"),
        (":handlers", "':handlers' does not name an attribute"),
        (".hf_app:handlers", "'.hf_app:handlers' does not name an attribute"),
        ("hf_app:Agents..handlers", "'hf_app:Agents..handlers' does not name an attribute"),
        ("hf_app.py", "'hf_app.py' is a file; write its module: hf_app:handlers"),
        ("./agents/hf_app.py:make", "'./agents/hf_app.py:make' is a file; write its module: agents.hf_app:make"),
        ("hf_app:handler", "module 'hf_app' has no attribute 'handler'; did you mean 'handlers'?"),
        ("hf_app:xyz", "module 'hf_app' has no attribute 'xyz'"),
        ("hf_app:Agents.handlres", "hf_app:Agents has no attribute 'handlres'; did you mean 'handlers'?"),
        ("hf_app:tools", "hf_app:tools is of type list; it must be a dict of handler names and functions"),
        ("hf_app:empty", "hf_app:empty is empty; it must be a dict"),
        ("hf_app:numbers", "hf_app:numbers has 'shopper': int; it must be a dict"),
        ("hf_app:unnamed", "hf_app:unnamed has 1: function; it must be a dict"),
        ("hf_app:shopper", "hf_app:shopper is a function that takes (run); it must take no arguments"),
        ("hf_app:make_nothing", "the result of hf_app:make_nothing() is of type NoneType; it must be a dict"),
        ("hf_app:make_later", "hf_app:make_later is async; it must be a dict of handlers"),
    ],
)
def test_what_names_no_handlers_is_refused(named: str, message: str) -> None:
    assert told(named).startswith(message)


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    assert told("hf_ap:handlers") == (f"no module 'hf_ap' in {tmp_path} or installed; did you mean 'hf_app'?")


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("import hf_nowhere", "ModuleNotFoundError: No module named 'hf_nowhere'"),
        ("import hf_broken.part", "ModuleNotFoundError: No module named 'hf_broken.part'"),
        ("from hf_app import nothing", "ImportError: cannot import name 'nothing' from 'hf_app'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_that_fails_shows_where(tmp_path: Path, source: str, shown: str) -> None:
    (tmp_path / "hf_broken.py").write_text(source)
    message = told("hf_broken:handlers", HoldfastError)
    assert message.startswith("importing hf_broken failed:\n")
    assert f'File "{tmp_path / "hf_broken.py"}", line 1' in message
    assert source in message
    assert shown in message
    assert "importlib" not in message
    assert "application.py" not in message


def test_a_factory_that_fails_shows_where() -> None:
    message = told("hf_app:fail", HoldfastError)
    assert message.startswith("hf_app:fail() failed:\nTraceback")
    assert message.endswith("KeyError: 'no such key'")


def test_tools_are_an_iterable_of_functions() -> None:
    assert [tool.__name__ for tool in load_tools("hf_app:tools")] == ["look_up"]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("hf_app:look_up", "hf_app:look_up is of type function; it must be a list of functions"),
        ("hf_app:handlers", "hf_app:handlers is of type dict; it must be a list of functions"),
        ("hf_app:words", "tools must be functions"),
        ("hf_app:twins", "two tools are named 'look_up'"),
        ("hf_app:tool", "module 'hf_app' has no attribute 'tool'; did you mean 'tools'?"),
    ],
)
def test_what_names_no_tools_is_refused(named: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        load_tools(named)
    assert str(raised.value).startswith(message)
