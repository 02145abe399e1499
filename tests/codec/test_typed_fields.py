"""A stored field that a type has no place for is told, and never dropped in silence."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, TypedDict

import attrs
import msgspec
import pydantic
import pytest

import holdfast
from holdfast import Holdfast, InvalidArgument
from holdfast.codec.typed import StateType, left_over
from tests.cases import for_each
from tests.covers import covers


class Role(enum.Enum):
    USER = "user"


@dataclass
class Mail:
    subject: str
    read: bool = False


@dataclass
class Inbox:
    mails: list[Mail] = field(default_factory=list)
    by_role: dict[Role, Mail] = field(default_factory=dict)
    pair: tuple[Mail, int] | None = None


@attrs.define
class Note:
    text: str
    inside: Mail | None = None


class Tagged(msgspec.Struct, tag_field="kind", tag="t", rename="camel", omit_defaults=True):
    long_name: int = 0


class InRow(msgspec.Struct, array_like=True, tag=True):
    a: int
    b: int = 0


class Talk(TypedDict):
    mails: list[Mail]


class Model(pydantic.BaseModel):
    name: str
    mail: Mail | None = None


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str


class Renaming(pydantic.BaseModel):
    name: str

    @pydantic.model_validator(mode="before")
    @classmethod
    def renamed(cls, value: Any) -> Any:
        return {"name": value["old_name"]} if "old_name" in value else value


class Root(pydantic.RootModel[dict[str, Mail]]):
    pass


@covers("G6")
@for_each(
    ("kind", "plain", "path"),
    [
        (Mail, {"subject": "a", "note": 1}, "$.note"),
        (Inbox, {"mails": [{"subject": "a"}, {"subject": "b", "note": 1}]}, "$.mails[1].note"),
        (Inbox, {"pair": ({"subject": "a", "note": 1}, 2)}, "$.pair[0].note"),
        (list[Mail], [{"subject": "a", "note": 1}], "$[0].note"),
        (dict[str, Mail], {"x": {"subject": "a", "note": 1}}, "$.x.note"),
        (Note, {"text": "a", "inside": {"subject": "a", "note": 1}}, "$.inside.note"),
        (Tagged, {"kind": "t", "longName": 1, "long_name": 2}, "$.long_name"),
        (InRow, ["InRow", 1, 2, 3], "$[3]"),
        (Talk, {"mails": [], "note": 1}, "$.note"),
        (Talk, {"mails": [{"subject": "a", "note": 1}]}, "$.mails[0].note"),
        (Model, {"name": "a", "note": 1}, "$.note"),
        (Model, {"name": "a", "mail": {"subject": "a", "note": 1}}, "$.mail.note"),
        (Root, {"x": {"subject": "a", "note": 1}}, "$.x.note"),
    ],
)
def test_what_would_be_dropped_is_refused_by_its_path(kind: Any, plain: Any, path: str) -> None:
    with pytest.raises(InvalidArgument) as told:
        StateType(kind).from_plain(plain)
    assert f"at {path};" in str(told.value)


@for_each(
    ("kind", "plain"),
    [
        (Mail, {"subject": "a"}),
        (Inbox, {"mails": [{"subject": "a"}], "by_role": {"user": {"subject": "a"}}, "pair": ({"subject": "b"}, 1)}),
        (Tagged, {"kind": "t"}),
        (Tagged, {"kind": "t", "longName": 0}),
        (InRow, ["InRow", 1]),
        (Talk, {"mails": [{"subject": "a"}]}),
        (Open, {"name": "a", "note": {"any": "thing"}}),
        (Renaming, {"old_name": "a"}),
        (Root, {"x": {"subject": "a"}}),
        (dict[str, Any], {"any": {"thing": [1]}}),
    ],
)
def test_what_has_its_place_and_what_has_a_default_is_taken(kind: Any, plain: Any) -> None:
    assert left_over(plain, StateType(kind).from_plain(plain)) is None


@covers("G6")
def test_an_older_program_does_not_lose_what_a_newer_one_saved(hf: Holdfast) -> None:
    hf.thread("t").save({"subject": "a", "read": True, "note": "keep me"})
    older = hf.thread("t", type=Mail)
    with pytest.raises(InvalidArgument, match=r"at \$\.note"):
        older.latest()
    older.save(Mail("b"), expect=holdfast.ANY)  # it may still say so itself
    found = hf.thread("t").load("@-2")
    assert found.state["note"] == "keep me"
