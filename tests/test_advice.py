"""An error that advises a parameter names one that exists where the error was raised."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import enum
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pydantic
import pytest

import holdfast
from holdfast import Happened, Holdfast, HoldfastError, Run
from holdfast.drill.runner import crash_everywhere
from tests.cases import for_each
from tests.source import modules, tree_of


@dataclasses.dataclass
class Plan:
    text: str = ""


class Note(pydantic.BaseModel):
    text: str = ""


class Mood(enum.Enum):
    CALM = "calm"


VALUES: list[Any] = [
    Plan(),
    Note(),
    Mood.CALM,
    PurePosixPath("/a"),
    pydantic.HttpUrl("https://example.org"),
    {1: [Plan()]},
    object(),
    1j,
]
_PARAMETER = re.compile(r"\b([a-z_]+)=")
_OF = re.compile(r"type= of ((?:(?:hf|run)\.\w+(?:, | or )?)+)")


def _verbs() -> dict[str, Callable[..., Any]]:
    return {
        **{f"hf.{name}": getattr(Holdfast, name) for name in dir(Holdfast) if not name.startswith("_")},
        **{f"run.{name}": getattr(Run, name) for name in dir(Run) if not name.startswith("_")},
        "holdfast.open": holdfast.open,
        "holdfast.tool": holdfast.tool,
        "holdfast.handler": holdfast.handler,
    }


def wrong_advice(text: str, verb: Callable[..., Any]) -> list[str]:
    """Parameters that a text advises, and that neither the verb nor the function named in the text has."""
    verbs = _verbs()
    named = [name for name in verbs if re.search(rf"(?<![\w.]){re.escape(name)}\b", text)]
    known = [verb, *(verbs[name] for name in named)]
    wrong = [
        each
        for each in _PARAMETER.findall(text)
        if not any(each in inspect.signature(function).parameters for function in known)
    ]
    for listed in _OF.findall(text):
        names = re.findall(r"(?:hf|run)\.\w+", listed)
        wrong += [f"type= of {name}" for name in names if "type" not in inspect.signature(verbs[name]).parameters]
    return wrong


def test_wrong_advice_is_found() -> None:
    assert wrong_advice("pass type=", Run.tool) == ["type"]
    assert wrong_advice("pass type= to run.model", Run.tool) == []
    assert wrong_advice("type= of hf.thread or run.tool", Run.tool) == ["type= of run.tool"]
    assert wrong_advice("pass key=", Run.tool) == []


def _in_run(act: Callable[[Run], Any]) -> None:
    with holdfast.open("memory:") as hf, hf.run("t", start={}) as run:
        act(run)


def _opened(act: Callable[[Holdfast], Any]) -> None:
    with holdfast.open("memory:") as hf:
        hf.thread("t").save({})
        act(hf)


async def _in_async_run(value: Any) -> None:
    async with await holdfast.aopen("memory:") as hf, hf.run("t", start={}) as run:
        await run.tool(lambda: value)


def _state(run: Run, value: Any) -> None:
    run.state = value
    run.save()


def _settled(hf: Holdfast, value: Any) -> None:
    def crash() -> None:
        raise OSError

    with hf.run("r", start={}) as run:
        run.tool(crash)
    hf.settle("r", 1, Happened(value))


def _child(run: Run, value: Any) -> None:
    with run.child("c", start=value):
        pass


PLACES: list[tuple[Callable[[Any], Any], Callable[..., Any]]] = [
    (lambda value: _opened(lambda hf: hf.thread("u").save(value)), holdfast.Thread.save),
    (lambda value: _opened(lambda hf: hf.thread("u").save({}, metadata={"a": value})), holdfast.Thread.save),
    (lambda value: _opened(lambda hf: hf.run("u", start=value).__enter__()), Holdfast.run),
    (lambda value: _opened(lambda hf: hf.submit("h", "u", start=value)), Holdfast.submit),
    (lambda value: _opened(lambda hf: hf.thread("t").fork("u", state=value)), holdfast.Thread.fork),
    (lambda value: _opened(lambda hf: _settled(hf, value)), Holdfast.settle),
    (lambda value: _opened(lambda hf: hf.answer("t", "q", value)), Holdfast.answer),
    (lambda value: _in_run(lambda run: _state(run, value)), Run.save),
    (lambda value: _in_run(lambda run: run.finish(value)), Run.finish),
    (lambda value: _in_run(lambda run: run.wait("q", value)), Run.wait),
    (lambda value: _in_run(lambda run: run.model(lambda: value)), Run.model),
    (lambda value: _in_run(lambda run: list(run.stream(lambda: iter([value])))), Run.stream),
    (lambda value: _in_run(lambda run: run.tool(lambda: value)), Run.tool),
    (lambda value: _in_run(lambda run: run.tool(lambda a: a, {"a": value})), Run.tool),
    (lambda value: _in_run(lambda run: _child(run, value)), Run.child),
    (lambda value: asyncio.run(_in_async_run(value)), holdfast.AsyncRun.tool),
]


@for_each(("give", "verb"), PLACES)
def test_the_advice_about_a_value_that_cannot_be_stored(give: Callable[[Any], Any], verb: Callable[..., Any]) -> None:
    for value in VALUES:
        with pytest.raises(HoldfastError) as caught:
            give(value)
        assert wrong_advice(str(caught.value), verb) == [], f"{verb.__qualname__}: {caught.value}"


def test_every_class_that_needs_a_type_is_told_where_to_declare_it() -> None:
    for value in VALUES[:5]:
        with pytest.raises(HoldfastError, match=r"type= of hf\.thread, hf\.run, run\.child or hf\.submit$"):
            _opened(lambda hf, value=value: hf.thread("u").save(value))  # type: ignore[misc]
        with pytest.raises(HoldfastError, match=r"or pass type= to run\.model$"):
            _in_run(lambda run, value=value: run.model(lambda: value))  # type: ignore[misc]
        with pytest.raises(HoldfastError, match=r"or annotate the function: -> "):
            _in_run(lambda run, value=value: run.tool(lambda: value))  # type: ignore[misc]


# -- all texts --------------------------------------------------------------------------------------------------------


def _advising() -> Iterator[tuple[str, int, str]]:
    """Every text in the source that tells the user to pass, omit or give a parameter."""
    for module in modules():
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            for name in re.findall(r"\b(?:[Pp]ass|[Oo]mit|[Ww]ithout|[Dd]eclare|[Gg]ive) ([a-z_]+)=", text):
                yield module, node.lineno, name


def _parameters() -> set[str]:
    """The parameters of everything public."""
    found: set[str] = set()
    objects = [getattr(holdfast, name) for name in holdfast.__all__]
    objects += [holdfast.codec.register, crash_everywhere]
    for each in objects:
        names = [name for name in dir(each) if not name.startswith("_")] if inspect.isclass(each) else []
        for function in [each, *(getattr(each, name) for name in names)]:
            if callable(function):
                try:
                    found |= set(inspect.signature(function).parameters)
                except (TypeError, ValueError):
                    continue
    return found


def test_every_advised_parameter_exists() -> None:
    known = _parameters()
    unknown = [f"{module}:{line}: {name}=" for module, line, name in _advising() if name not in known]
    assert not unknown, "\n".join(unknown)


def test_the_root_of_the_source_is_read() -> None:
    assert len(list(_advising())) > 20
    assert Path(holdfast.__file__).name == "__init__.py"
