"""Types with pydantic in them, the response classes of model clients, paths, URLs and secrets."""

from __future__ import annotations

import dataclasses
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal

import anthropic.types
import openai.types.chat
import openai.types.responses
import pydantic
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from holdfast.codec.msgpack import check, decode, encode
from holdfast.codec.typed import StateType
from holdfast.errors import InvalidArgument, Unsupported
from tests.cases import for_each


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []


Pet = Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]


class Shelter(pydantic.BaseModel):
    pets: list[Pet] = []
    home: Path = Path("/srv/shelter")
    site: pydantic.HttpUrl = pydantic.HttpUrl("https://example.org/pets")


@dataclasses.dataclass
class Kennel:
    """A plain dataclass that contains a union of models."""

    pets: list[Cat | Dog]
    sizes: dict[str, Cat | Dog | None] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Site:
    root: Path
    url: pydantic.HttpUrl
    parts: list[PurePosixPath] = dataclasses.field(default_factory=list)
    backup: Path | None = None


class Cached(pydantic.BaseModel):
    name: str
    _hits: int = pydantic.PrivateAttr(0)


class Cache(pydantic.BaseModel):
    items: list[Cached] = []
    by_name: dict[str, Cached] = {}
    _owner: str | None = pydantic.PrivateAttr(None)


def cached(name: str, hits: int) -> Cached:
    made = Cached(name=name)
    made._hits = hits
    return made


def cache() -> Cache:
    made = Cache(items=[cached("a", 0), cached("b", 2)], by_name={"__private__": cached("c", 3)})
    made._owner = "ann"
    return made


def completion(**more: Any) -> openai.types.chat.ChatCompletion:
    """A reply as the client makes it: not validated, with a field that the client does not know."""
    made = openai.types.chat.ChatCompletion.construct(
        id="c1",
        object="chat.completion",
        created=1,
        model="m",
        choices=[
            {
                "index": 0,
                "finish_reason": "a reason of tomorrow",
                "message": {"role": "assistant", "content": "Hi", "shade": {"__private__": [1]}},
            }
        ],
        usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
        **more,
    )
    made._request_id = "req_1"
    return made


def message() -> anthropic.types.Message:
    made = anthropic.types.Message.construct(
        id="m1",
        type="message",
        role="assistant",
        model="m",
        content=[
            {"type": "text", "text": "Hi", "citations": None},
            {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "tides"}},
            {"type": "of tomorrow", "x": 1},
        ],
        stop_reason="tool_use",
        stop_sequence=None,
        usage={"input_tokens": 1, "output_tokens": 2},
    )
    made._request_id = "req_2"
    return made


ACCEPTED: list[tuple[Any, Any]] = [
    (Cat | Dog, Dog(tricks=["sit"])),
    (Cat | Dog | None, None),
    (Pet, Cat(lives=7)),
    (list[Pet], [Cat(), Dog()]),
    (dict[str, list[Cat | Dog]], {"a": [Cat(), Dog(tricks=["roll"])]}),
    (Shelter, Shelter(pets=[Dog(), Cat()])),
    (Kennel, Kennel([Cat(), Dog()], {"small": Cat(), "none": None})),
    (AnyMessage, SystemMessage("Be brief.")),
    (
        list[AnyMessage],
        [
            HumanMessage("Hi", id="1"),
            AIMessage("", tool_calls=[{"name": "search", "args": {"q": "tides"}, "id": "t1", "type": "tool_call"}]),
            ToolMessage("two books", tool_call_id="t1", artifact={"n": 2}),
        ],
    ),
    (ModelMessage, ModelRequest(parts=[UserPromptPart("Hi")])),
    (
        list[ModelMessage],
        [
            ModelRequest(parts=[UserPromptPart(["Look:", BinaryContent(b"\xff", media_type="application/pdf")])]),
            ModelResponse(parts=[TextPart("Hm"), ToolCallPart("search", {"q": "tides"}, tool_call_id="t1")]),
            ModelRequest(parts=[ToolReturnPart("search", {"books": 2}, tool_call_id="t1")]),
        ],
    ),
    (openai.types.chat.ChatCompletion, completion()),
    (anthropic.types.Message, message()),
    (list[anthropic.types.Message], [message()]),
    (Cache, cache()),
    (Path, Path("/etc/hosts")),
    (PureWindowsPath, PureWindowsPath("C:/x")),
    (dict[str, Path], {"a": Path("a"), "b": Path("b/c")}),
    (pydantic.HttpUrl, pydantic.HttpUrl("https://user@example.org:8443/a?b=c#d")),
    (Site, Site(Path("/srv"), pydantic.HttpUrl("https://example.org"), [PurePosixPath("a")])),
    (pydantic.PostgresDsn, pydantic.PostgresDsn("postgres://a@db:5432/x")),
]


@for_each(("kind", "state"), ACCEPTED)
def test_a_state_is_restored_as_it_was(kind: Any, state: Any) -> None:
    typed = StateType(kind)
    plain = typed.to_plain(state)
    check(plain)
    back = typed.from_plain(decode(encode(plain)))
    assert type(back) is type(state)
    assert back == state
    assert repr(back) == repr(state)
    assert typed.to_plain(back) == plain


@pytest.mark.parametrize("make", [completion, message])
def test_a_clients_reply_keeps_what_was_sent_and_its_request_id(make: Any) -> None:
    reply = make()
    typed = StateType(type(reply))
    back = typed.from_plain(decode(encode(typed.to_plain(reply))))
    assert back._request_id == reply._request_id
    assert back.to_json(warnings=False) == reply.to_json(warnings=False)
    assert back.model_fields_set == reply.model_fields_set
    plain = typed.to_plain(reply)
    assert plain["id"] == reply.id  # plain data, as the command line shows it


def test_private_attributes_are_restored() -> None:
    typed = StateType(Cache)
    back = typed.from_plain(decode(encode(typed.to_plain(cache()))))
    assert back._owner == "ann"
    assert [each._hits for each in back.items] == [0, 2]
    assert back.by_name["__private__"]._hits == 3
    assert "__private__" not in typed.to_plain(Cache(items=[Cached(name="a")]))


class Locked(pydantic.BaseModel):
    name: str = "a"
    _socket: Any = pydantic.PrivateAttr(None)


def test_a_private_attribute_that_cannot_be_stored_is_refused_by_path() -> None:
    state = Locked()
    state._socket = object()
    with pytest.raises(Unsupported, match=r"^\$\._socket: type builtins\.object|^\$\._socket: type object"):
        StateType(Locked).to_plain(state)


FORGED: list[Any] = [
    {"name": "a", "__private__": [[[], "name", "b"]]},
    {"name": "a", "__private__": [[[], "__class__", "b"]]},
    {"name": "a", "__private__": [[["name"], "_hits", 1]]},
    {"name": "a", "__private__": [[[0], "_hits", 1]]},
    {"name": "a", "__private__": [[["nothing"], "_hits", 1]]},
    {"name": "a", "__private__": [[["model_dump"], "_hits", 1]]},
    {"name": "a", "__private__": "x"},
    {"name": "a", "__private__": [1]},
]


@for_each(("plain",), [(each,) for each in FORGED])
def test_forged_private_attributes_do_not_fit_the_type(plain: Any) -> None:
    with pytest.raises(InvalidArgument, match="does not fit"):
        StateType(Cached).from_plain(plain)


class Twin(pydantic.BaseModel):
    lives: int = 9


class OtherTwin(pydantic.BaseModel):
    lives: int = 9


def test_a_member_of_a_union_that_would_be_taken_for_another_is_refused() -> None:
    assert StateType(Twin | OtherTwin).to_plain(Twin()) == {"lives": 9}
    with pytest.raises(Unsupported, match=r"would be restored as .*Twin; .*discriminator"):
        StateType(Twin | OtherTwin).to_plain(OtherTwin())


def test_a_stored_field_without_a_place_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"does not fit .* at \$\[0\]\.age"):
        StateType(list[Cat | Dog]).from_plain([{"kind": "cat", "lives": 1, "age": 3}])


def test_a_stored_value_of_another_form_is_refused_without_its_text() -> None:
    with pytest.raises(InvalidArgument, match=r"does not fit") as caught:
        StateType(list[Pet]).from_plain([{"kind": "s3cret"}])
    assert "s3cret" not in str(caught.value)


# -- secrets ----------------------------------------------------------------------------------------------------------


class Account(pydantic.BaseModel):
    name: str
    password: pydantic.SecretStr
    token: pydantic.SecretBytes = pydantic.SecretBytes(b"t0ken")


@dataclasses.dataclass
class Login:
    password: pydantic.SecretStr


SECRETS: list[tuple[Any, Any, str]] = [
    (pydantic.SecretStr, pydantic.SecretStr("s3cret"), r"\$"),
    (Account, Account(name="ann", password=pydantic.SecretStr("s3cret")), r"\$\.password"),
    (Login, Login(pydantic.SecretStr("s3cret")), r"\$\.password"),
    (list[Account | Cat], [Account(name="ann", password=pydantic.SecretStr("s3cret"))], r"\$\[0\]\.password"),
]


@for_each(("kind", "state", "path"), SECRETS)
def test_a_secret_is_refused_with_the_reason(kind: Any, state: Any, path: str) -> None:
    with pytest.raises(Unsupported, match=rf"^{path}: .*secret.*redact=") as caught:
        StateType(kind).to_plain(state)
    assert "s3cret" not in str(caught.value)


@for_each(("kind", "state", "path"), SECRETS)
def test_a_secret_is_stored_redacted(kind: Any, state: Any, path: str) -> None:
    typed = StateType(kind)
    plain = typed.to_plain(state, hidden="[redacted]")
    check(plain)
    assert b"s3cret" not in encode(plain)
    assert b"t0ken" not in encode(plain)
    back = typed.from_plain(decode(encode(plain)))
    assert type(back) is type(state)
    assert "s3cret" not in str(plain)
    assert typed.to_plain(back, hidden="[redacted]") == plain


def test_a_type_knows_its_secrets() -> None:
    assert StateType(Account).has_secrets
    assert StateType(Login).has_secrets
    assert StateType(list[Account | Cat]).has_secrets
    assert not StateType(Shelter).has_secrets


# -- types that cannot be stored --------------------------------------------------------------------------------------


@dataclasses.dataclass
class Line:
    socket: socket.socket


class Unknown:
    pass


TYPES: list[tuple[Any, str]] = [
    (Line, r"socket\.socket"),
    (list[Unknown], "Unknown"),
    (dict[str, list[Unknown | None]], "Unknown"),
    (Cat | Unknown, "Unknown"),
    (Iterator[Cat], "Iterator|generator"),
    (Path | Cat | PurePath, ""),
]


@for_each(("kind", "why"), TYPES[:-1])
def test_a_type_that_cannot_be_stored_is_refused_at_once(kind: Any, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        StateType(kind)


def test_pydantic_and_the_clients_are_not_imported() -> None:
    """Neither by Holdfast nor by a typed state without them."""
    code = """
import sys
import holdfast, dataclasses, pathlib
from holdfast.codec.typed import StateType

@dataclasses.dataclass
class Place:
    at: pathlib.Path

typed = StateType(Place)
assert typed.from_plain(typed.to_plain(Place(pathlib.Path("/a")))) == Place(pathlib.Path("/a"))
assert not {"pydantic", "openai", "anthropic"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
