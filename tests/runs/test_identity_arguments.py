"""The identity of model calls whose arguments cannot be stored: objects of classes, and lists of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import pydantic
import pytest

from tests.runs.conftest import World


@dataclass
class Note:
    text: str
    about: Any = None


class Message(msgspec.Struct):
    text: str


class Prompt(pydantic.BaseModel):
    text: str


class Line(str):
    """A text of a class of its own."""

    __slots__ = ()


class Form(Enum):
    A = "a"
    B = "b"


FORMS: list[Callable[[str], Any]] = [
    Note,
    lambda text: [Message(text)],
    lambda text: {"messages": [Prompt(text=text)], "client": threading.Lock()},
    lambda text: (Note("same", about=Note(text)),),
    lambda text: {Form(text)},
    Line,
    lambda text: OrderedDict(text=text),
]


@pytest.mark.parametrize("made", FORMS, ids=range(len(FORMS)))
def test_models_are_matched_by_arguments_that_cannot_be_stored(world: World, made: Callable[[str], Any]) -> None:
    asked: list[str] = []

    def model(which: int, argument: Any) -> str:
        asked.append(repr(argument))
        return f"reply {len(asked)}"

    with world.dying("t", start={}) as run:
        for text in ("a", "b"):
            run.model(model, 1, made(text))
    with world.running("t") as run:
        assert run.model(model, 1, made("b")) == "reply 2"
        assert run.model(model, 1, made("a")) == "reply 1"
        assert run.changed == ()
    with world.dying("u", start={}) as run:
        run.model(model, 2, made("a"))
    with world.running("u") as run:
        assert run.model(model, 2, made("b"), on_change="rerun") == "reply 4"
        assert [effect.number for effect in run.changed] == [1]


def test_an_argument_that_cannot_be_stored_may_contain_itself(world: World) -> None:
    def model(note: Note) -> str:
        return f"reply to {note.text}"

    def ring(text: str) -> Note:
        note = Note(text)
        note.about = [note, note, {"note": note}]
        note.about.append(note.about)
        return note

    with world.dying("t", start={}) as run:
        for text in ("a", "b"):
            run.model(model, ring(text))
    with world.running("t") as run:
        assert run.model(model, ring("b")) == "reply to b"
        assert run.changed == ()


def test_a_model_gets_copies_of_the_lists_around_what_cannot_be_stored(world: World) -> None:
    def model(messages: list[Any], **more: Any) -> int:
        messages.append("changed")
        more["more"]["notes"].clear()
        return len(messages)

    with world.running("t", start={}) as run:
        messages, more = [Note("a")], {"notes": [Note("b")]}
        assert run.model(model, messages, more=more) == 2
        assert (messages, more) == ([Note("a")], {"notes": [Note("b")]})
