"""A value that `exact_check` accepts is always restored equal, so that a save need not restore it to prove that."""

from __future__ import annotations

import dataclasses
import enum
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from holdfast.codec import typed
from holdfast.codec.exact import exact_check
from holdfast.codec.typed import StateType
from holdfast.errors import Unsupported


class Role(enum.Enum):
    USER = "user"
    AGENT = "agent"


class Level(enum.IntEnum):
    LOW = 1


class Note(TypedDict):
    text: str
    level: NotRequired[int | None]


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str
    friends: list[Cat | Dog] = []


class Sheet(msgspec.Struct, array_like=True):
    rows: list[list[float]]
    note: str | None = None


class Model(pydantic.BaseModel):
    text: str
    score: float | None = None
    inner: list[Model] = []
    args: dict[str, Any] = {}
    role: Literal["user", "agent"] = "user"


@dataclasses.dataclass
class Message:
    role: Role
    text: str
    by: Literal["a", 1] | None = None
    when: datetime | None = None
    args: Any = None


@dataclasses.dataclass
class Limited:
    step: Annotated[int, msgspec.Meta(le=3)]


@dataclasses.dataclass
class State:
    messages: list[Message]
    step: int
    score: float | int | None
    notes: dict[str, Note]
    pets: list[Cat | Dog]
    models: tuple[Model, ...]
    level: Level
    raw: bytes
    day: date
    at: time
    took: timedelta
    id: UUID
    cost: Decimal
    sheet: Sheet | None


_text = st.text(max_size=3)
_odd: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-1, 2), st.integers(), st.floats(), _text, st.binary(max_size=2),
    st.just(10**30), st.lists(st.integers(), max_size=2), st.tuples(st.integers()), st.sampled_from([*Role, Level.LOW]),
    st.dictionaries(_text, st.tuples(_text), max_size=1), st.dictionaries(st.integers(), _text, max_size=1),
    st.builds(Cat, name=_text), st.just(datetime(2026, 1, 1, tzinfo=UTC)), st.sets(st.integers(), max_size=1),
)  # fmt: skip


def _either(right: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly a value of the declared type, sometimes any other."""
    return st.integers(0, 40).flatmap(lambda n: _odd if n == 0 else right)


_any = _either(st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _text), lambda inner: (
    st.lists(inner, max_size=2) | st.dictionaries(_text, inner, max_size=2)), max_leaves=4))  # fmt: skip
_notes = st.fixed_dictionaries({"text": _either(_text)}, optional={"level": _either(st.integers()), "more": _text})
_cats = st.builds(Cat, name=_either(_text))
_dogs = st.builds(Dog, name=_either(_text), friends=st.lists(_cats, max_size=1))
_arguments = st.dictionaries(_text, _any, max_size=1)
_models = st.builds(Model.model_construct, text=_either(_text), score=_either(st.floats()), args=_arguments)
_messages = st.builds(
    Message,
    role=_either(st.sampled_from(Role)),
    text=_either(_text),
    by=st.sampled_from(["a", 1, None, True, "b"]),
    when=_either(st.none() | st.datetimes(timezones=st.just(UTC))),
    args=_any,
)
_states = st.builds(
    State,
    messages=_either(st.lists(_either(_messages), max_size=3)),
    step=_either(st.integers()),
    score=_either(st.floats() | st.integers()),
    notes=_either(st.dictionaries(_text, _notes, max_size=2)),
    pets=st.lists(_cats | _dogs, max_size=2),
    models=st.lists(_models, max_size=2).map(tuple),
    level=_either(st.just(Level.LOW)),
    raw=_either(st.binary(max_size=2)),
    day=_either(st.dates()),
    at=_either(st.times()),
    took=_either(st.timedeltas()),
    id=_either(st.uuids()),
    cost=_either(st.decimals()),
    sheet=st.none() | st.builds(Sheet, rows=st.lists(st.lists(_either(st.floats()), max_size=2), max_size=2)),
)


@given(_states)
def test_an_accepted_value_is_restored_equal(state: State) -> None:
    check = exact_check(State)
    assert check is not None
    event(f"accepted: {check(state)}")
    if check(state):
        kept = StateType(State)
        plain = kept.to_plain(state)
        typed.difference(state, kept.from_plain(plain))


def test_a_state_of_the_declared_types_is_accepted() -> None:
    """The check is worth its time: it accepts what ordinary programs save."""
    check = exact_check(State)
    assert check is not None
    assert check(
        State(
            messages=[Message(Role.USER, "x", "a", None, {"k": [1]})],
            step=1,
            score=0.5,
            notes={"n": {"text": "t"}},
            pets=[Cat("c"), Dog("d", [Cat("e")])],
            models=(Model(text="t", inner=[Model(text="u")]),),
            level=Level.LOW,
            raw=b"r",
            day=date(2026, 1, 1),
            at=time(1),
            took=timedelta(1),
            id=UUID(int=1),
            cost=Decimal(1),
            sheet=Sheet([[0.5]]),
        )
    )


def test_what_a_user_wrote_may_change_values_so_it_is_always_compared() -> None:
    @dataclasses.dataclass
    class Post:
        text: str

        def __post_init__(self) -> None:
            self.text = self.text.strip()

    class PostStruct(msgspec.Struct):
        text: str

        def __post_init__(self) -> None:
            self.text = self.text.strip()

    class Omits(msgspec.Struct, omit_defaults=True):
        score: float = 0.0

    class Validated(pydantic.BaseModel):
        text: str

        @pydantic.field_validator("text")
        @classmethod
        def strip(cls, text: str) -> str:
            return text.strip()

    class Configured(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(str_strip_whitespace=True)
        text: str

    class Constrained(pydantic.BaseModel):
        text: str = pydantic.Field(max_length=3)

    class Private(pydantic.BaseModel):
        text: str
        _secret: int = 1

    class Overridden(pydantic.BaseModel):
        text: str

        def model_post_init(self, context: Any, /) -> None:
            self.text = self.text.strip()

    class WithStruct(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        cat: Cat

    def strip(text: str) -> str:
        return text.strip()

    @attrs.define
    class Converted:
        text: str = attrs.field(converter=strip)

    models = (Validated, Configured, Constrained, Private, Overridden, WithStruct)
    for kind in (Post, PostStruct, Omits, Converted, Limited, *models):
        assert exact_check(kind) is None, kind
        assert exact_check(list[kind]) is None, kind  # type: ignore[valid-type]


def test_types_that_cannot_be_told_apart_are_always_compared() -> None:
    for kind in (set[int], frozenset[str], Role | str, datetime | str, dict[tuple[int, int], str]):
        assert exact_check(kind) is None, kind


def test_a_value_of_another_type_is_refused_with_its_place() -> None:
    kept = StateType(Message)
    for message, place in (
        (Message(Role.USER, "x", True), ".by"),  # type: ignore[arg-type]
        (Message(Role.USER, 1), ".text"),  # type: ignore[arg-type]
        (Message("user", "x"), ".role"),  # type: ignore[arg-type]
    ):
        with pytest.raises(Unsupported) as refused:
            kept.to_plain(message)
        assert refused.value.path == f"${place}"


def test_an_attribute_that_is_no_field_is_refused() -> None:
    message = Message(Role.USER, "x")
    message.extra = 1  # type: ignore[attr-defined]
    check = exact_check(Message)
    assert check is not None
    assert not check(message)
    with pytest.raises(Unsupported, match="extra"):
        StateType(Message).to_plain(message)


def test_a_state_that_contains_itself_is_refused_with_its_place() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Unsupported, match="contains itself"):
        StateType(Message).to_plain(Message(Role.USER, "x", args=loop))
