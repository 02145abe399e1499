from __future__ import annotations

import dataclasses
import enum
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.codec.msgpack import check, decode, encode
from holdfast.codec.typed import StateType
from holdfast.errors import InvalidArgument, Unsupported
from tests.cases import for_each
from tests.codec.strategies import datetimes, identical, leaves
from tests.covers import covers
from tests.selection import tries


class Role(enum.Enum):
    USER = "user"
    AGENT = "agent"


class Level(enum.IntEnum):
    LOW = 1


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Place(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Message:
    role: Role
    text: str
    when: datetime | None = None


@dataclasses.dataclass(frozen=True)
class Tag:
    name: str


@dataclasses.dataclass
class Special(Message):
    more: int = 0


@dataclasses.dataclass
class State:
    messages: list[Message] = dataclasses.field(default_factory=list)
    score: float = 0.0
    anything: Any = None
    numbers: set[int] = dataclasses.field(default_factory=set)
    by_role: dict[Role, Message] = dataclasses.field(default_factory=dict)
    by_pair: dict[tuple[int, int], str] = dataclasses.field(default_factory=dict)
    place: Place = dataclasses.field(default_factory=lambda: Place(0, 0))
    rights: Right = Right.READ
    level: Level = Level.LOW
    id: UUID = dataclasses.field(default_factory=lambda: UUID(int=0))
    cost: Decimal = Decimal("0.00")
    raw: bytes = b""
    tags: frozenset[Tag] = frozenset()

    @cached_property
    def count(self) -> int:
        return len(self.messages)


class Struct(msgspec.Struct, rename="camel", tag=True, omit_defaults=True):
    first_name: str
    inner: Struct | None = None
    anything: Any = None


class Row(msgspec.Struct, array_like=True, frozen=True):
    x: int
    y: float


@attrs.define
class Attrs:
    x: int
    items: list[Message] = attrs.Factory(list)
    anything: Any = None


class Child(pydantic.BaseModel):
    name: str


class GrandChild(Child):
    age: int = 1


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    when: datetime | None = None
    role: Role = Role.USER
    child: Child | None = None
    numbers: set[int] = pydantic.Field(default_factory=set)
    aliased: int = pydantic.Field(default=3, alias="other")
    validated: int = pydantic.Field(default=3, validation_alias="elsewhere")
    anything: Any = None
    hidden: str = pydantic.Field(default="", exclude=True)
    _private: int = pydantic.PrivateAttr(0)


class Table(TypedDict):
    model: Model
    rows: list[Row]


@dataclasses.dataclass
class Holder:
    model: Model
    attrs: Attrs


def _model(**values: Any) -> Model:
    return Model.model_validate(values)


MESSAGE = Message(Role.USER, "hi", datetime(2024, 1, 1, tzinfo=UTC))
FULL = State(
    [MESSAGE],
    1.5,
    {"a": (1, [2, b"x", None])},
    {1, 2},
    {Role.AGENT: MESSAGE},
    {(1, 2): "a"},
    Place(1, 2),
    Right.READ | Right.WRITE,
    Level.LOW,
    UUID(int=7),
    Decimal("1.10"),
    b"\xff",
    frozenset({Tag("a")}),
)
ACCEPTED: list[tuple[Any, Any]] = [
    (State, State()),
    (State, FULL),
    (State, State(score=float("nan"), cost=Decimal("sNaN"))),
    (Struct, Struct("a", Struct("b", anything=[1, {2: 3}]))),
    (Row, Row(1, -0.0)),
    (Attrs, Attrs(1, [MESSAGE])),
    (Model, _model()),
    (Model, _model(child=Child(name="a"), role=Role.AGENT, numbers={1}, other=7, elsewhere=8, extra=[1])),
    (Table, {"model": _model(), "rows": [Row(1, 2.0)]}),
    (Holder, Holder(_model(), Attrs(1))),
    (list[Model], [_model(), _model()]),
    (dict[str, State], {"a": FULL}),
    (dict[int, Struct], {1: Struct("a")}),
    (list[Message | None], [None, MESSAGE]),
    (tuple[Role, ...], (Role.USER, Role.AGENT)),
    (Role, Role.USER),
    (Place, Place(1, 2)),
    (Any, {"a": [1]}),
]


@for_each(("kind", "state"), ACCEPTED)
def test_a_typed_state_comes_back(kind: Any, state: Any) -> None:
    typed = StateType(kind)
    plain = typed.to_plain(state)
    check(plain)
    back = typed.from_plain(decode(encode(plain)))
    assert type(back) is type(state)
    # NaN and sNaN have no equality to ask for.
    assert repr(back) == repr(state) or back == state
    assert identical(typed.to_plain(back), plain)


def test_a_set_of_objects_comes_back() -> None:
    # Its plain form is a list in the set's own order, which may differ after a restart: equal, not identical.
    state = State(tags=frozenset(Tag(str(number)) for number in range(50)))
    typed = StateType(State)
    assert typed.from_plain(decode(encode(typed.to_plain(state)))) == state


def test_times_that_pydantic_parsed_can_be_stored() -> None:
    for text, zone in (("2024-01-01T00:00:00Z", UTC), ("2024-01-01T00:00:00-01:30", timezone(-timedelta(minutes=90)))):
        state = Model.model_validate_json(f'{{"when": "{text}", "anything": null}}')
        plain = StateType(Model).to_plain(state)
        check(plain)
        assert identical(plain["when"], datetime(2024, 1, 1, tzinfo=zone))
        assert StateType(Model).from_plain(decode(encode(plain))) == state


@given(leaves(), st.none() | datetimes())
@settings(max_examples=tries(100, 40))
def test_any_field_is_stored_identically(leaf: Any, when: datetime | None) -> None:
    value: Any = {"a": [leaf, (leaf,)], leaf if _hashable(leaf) else 1: when}
    for state in (State(anything=value), Struct("", anything=value), Attrs(1, anything=value), _model(anything=value)):
        typed = StateType(type(state))
        plain = typed.to_plain(state)
        back = typed.from_plain(decode(encode(plain)))
        assert identical(back.anything, value)


def _hashable(value: Any) -> bool:
    return not (isinstance(value, Decimal) and value.is_snan())


def test_a_computed_property_is_not_state() -> None:
    state = State([MESSAGE])
    assert state.count == 1
    assert StateType(State).from_plain(StateType(State).to_plain(state)) == state


class Text(str):
    __slots__ = ()


class Other:
    pass


def _with_attribute() -> State:
    state = State()
    vars(state)["sneaked"] = 1
    return state


def _without_attribute() -> State:
    state = State()
    del state.numbers
    return state


def _looped() -> State:
    loop: list[Any] = []
    loop.append(loop)
    return State(anything=loop)


def _any(value: Any) -> Any:
    return value


REFUSED: list[tuple[Any, Callable[[], Any], str]] = [
    (State, lambda: {"messages": []}, "$"),
    (State, lambda: None, "$"),
    (Message, lambda: Special(Role.USER, "a"), "$"),
    (Child, lambda: GrandChild(name="a"), "$"),
    (State, lambda: State(anything=Level.LOW), "$.anything"),
    (State, lambda: State(anything={"a": [MESSAGE]}), "$.anything.a[0]"),
    (State, lambda: State(anything={Level.LOW: 1}), "$.anything[<tests.codec.test_typed.Level key>]"),
    (State, lambda: State(anything={1}), "$.anything"),
    (State, lambda: State(anything=Text("a")), "$.anything"),
    (State, lambda: State(anything=defaultdict(int)), "$.anything"),
    (State, lambda: State(anything=bytearray(b"a")), "$.anything"),
    (State, lambda: State(anything=[1, 1j]), "$.anything[1]"),
    (State, lambda: State(anything=Other()), "$.anything"),
    (State, lambda: State(score=1), "$.score"),
    (State, lambda: State(score=True), "$.score"),
    (State, lambda: State(messages=[MESSAGE, Special(Role.USER, "a")]), "$.messages[1]"),
    (State, lambda: State(messages=_any((MESSAGE,))), "$.messages"),
    (State, lambda: State(messages=_any(["s3cret"])), "$.messages[0]"),
    (State, lambda: State(numbers={True}), "$.numbers[0]"),
    (State, lambda: State(level=_any(1)), "$.level"),
    (State, lambda: State(by_role=_any({"user": MESSAGE})), "$.by_role.user"),
    (State, _with_attribute, "$.sneaked"),
    (State, _without_attribute, "$"),
    (State, _looped, "$.anything[0]"),
    (Struct, lambda: Struct("a", anything=Struct("b")), "$.anything"),
    (Attrs, lambda: Attrs(1, anything=Role.USER), "$.anything"),
    (Model, lambda: _model(child=GrandChild(name="a")), "$.child"),
    (Model, lambda: _model(anything=[Child(name="a")]), "$.anything[0]"),
    (Model, lambda: _model(hidden="a"), "$.hidden"),
    (Model, lambda: _model(extra=Level.LOW), "$.extra"),
    (Model, lambda: _model().model_copy(update={"role": "s3cret"}), "$.role"),
    (Holder, lambda: Holder(_model(anything={"k": Level.LOW}), Attrs(1)), "$.model.anything.k"),
    (dict[str, State], lambda: {"a b": State(score=1)}, '$["a b"].score'),
    (Table, lambda: {"model": _model(), "rows": [], "more": 1}, "$"),
    (Role, lambda: "user", "$"),
]


@for_each(("kind", "make", "path"), REFUSED)
def test_what_would_come_back_different_is_refused_by_path(kind: Any, make: Callable[[], Any], path: str) -> None:
    with pytest.raises(Unsupported) as caught:
        StateType(kind).to_plain(make())
    assert caught.value.path == path
    assert "s3cret" not in str(caught.value)


def test_too_deep_is_refused() -> None:
    value: Any = 0
    for _ in range(50_000):
        value = [value]
    with pytest.raises(Unsupported, match="nested more than"):
        StateType(State).to_plain(State(anything=value))


class Strict(pydantic.BaseModel):
    name: str

    @pydantic.field_validator("name")
    @classmethod
    def _append(cls, name: str) -> str:
        return name + "!"


@dataclasses.dataclass
class Broken:
    x: int = 0

    def __post_init__(self) -> None:
        if self.x > 1:
            raise RuntimeError("s3cret")


def test_validators_that_change_or_raise_are_refused() -> None:
    with pytest.raises(Unsupported) as caught:
        StateType(Strict).to_plain(Strict(name="a"))
    assert caught.value.path == "$.name"
    broken = Broken(1)
    broken.x = 2
    with pytest.raises(Unsupported) as caught:
        StateType(Broken).to_plain(broken)
    assert "s3cret" not in str(caught.value)


@covers("cortex/CheckpointError.Serialization")
@for_each(
    ("kind", "plain", "path"),
    [
        (State, {"messages": [{"role": "user", "text": 5}]}, "$.messages[0].text"),
        (State, {"level": "s3cret"}, "$.level"),
        (State, [], "$"),
        (Message, {"role": "s3cret", "text": ""}, "$.role"),
        (Message, {}, "$"),
        (Model, {"when": "s3cret"}, "$.when"),
        (Model, {"child": {"name": 5}}, "$.child.name"),
        (Holder, {"model": {"child": {"name": 5}}, "attrs": {"x": 1}}, "$.model.child.name"),
        (list[Model], [{}, {"numbers": {0: "s3cret"}}], "$[1].numbers"),
        (Broken, {"x": 2}, "$"),
        (Role, "s3cret", "$"),
    ],
)
def test_stored_data_that_fits_no_more_says_where_and_shows_nothing(kind: Any, plain: Any, path: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        StateType(kind).from_plain(plain)
    assert not isinstance(caught.value, Unsupported)
    assert f" at {path};" in str(caught.value)
    assert StateType(kind).name in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is not None


@for_each("kind", [5, "State", State([], anything="s3cret"), len, Other, object, Message | Tag, ..., []])
def test_other_arguments_are_no_types(kind: Any) -> None:
    with pytest.raises(InvalidArgument, match="type= cannot be used") as caught:
        StateType(kind)
    assert "s3cret" not in str(caught.value)


def test_neither_pydantic_nor_attrs_is_imported() -> None:
    script = (
        "import sys, dataclasses; from holdfast.codec.typed import StateType\n"
        "S = dataclasses.make_dataclass('S', [('x', int)]); t = StateType(S)\n"
        "assert t.from_plain(t.to_plain(S(1))) == S(1)\n"
        "assert not {'pydantic', 'attr', 'attrs'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": ":".join(filter(None, sys.path))}, check=True)


def test_dates_and_bytes_stay_what_they_are() -> None:
    plain = StateType(State).to_plain(State(anything=[date(2024, 1, 1), b"a", UUID(int=1), Decimal(1)]))
    assert identical(plain["anything"], [date(2024, 1, 1), b"a", UUID(int=1), Decimal(1)])
