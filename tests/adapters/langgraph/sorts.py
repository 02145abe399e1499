"""Classes of a user, at the top of a module, where LangGraph's serializer finds them."""

from __future__ import annotations

import dataclasses
import enum
from datetime import datetime
from typing import Annotated, Any, NamedTuple, NewType, NotRequired, Optional

import pydantic
from typing_extensions import TypedDict


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Inner:
    name: str


@dataclasses.dataclass
class Outer:
    inner: Inner
    more: list[Inner]


@dataclasses.dataclass
class Counted:
    """Its constructor does not take what is saved of it."""

    name: str
    count: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass
class Holder:
    held: Any

    def __post_init__(self) -> None:
        """Runs while it is loaded; tests put something here."""


class Address(pydantic.BaseModel):
    street: str


class Person(pydantic.BaseModel):
    name: str
    address: Address
    born: datetime | None = None


class Box:
    @dataclasses.dataclass
    class Lid:
        """Not found under its name."""

        size: int


class Stamp(datetime):
    pass


Where = NewType("Where", Point)


class Deep(TypedDict):
    level: Level


class State(TypedDict):
    people: Annotated[list[Person], "reduced"]
    color: NotRequired[Color]
    where: Optional[Where]  # noqa: UP045 - annotations of this form are followed too
    deep: dict[str, Deep]
    outer: Outer | None
    number: int


class Plain:
    """Nothing that a serializer knows."""
