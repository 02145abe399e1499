"""Types: LangGraph's safe ones, those that are allowed, and no other, at save and at load."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pydantic
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send

from holdfast import InvalidArgument, Unsupported
from holdfast.adapters.langgraph.allowed_types import serde_for
from holdfast.adapters.langgraph.serde import Values
from tests.adapters.langgraph import sorts
from tests.adapters.langgraph.sorts import (
    Address,
    Box,
    Color,
    Counted,
    Holder,
    Inner,
    Level,
    Outer,
    Person,
    Point,
    Stamp,
    State,
)
from tests.adapters.langgraph.test_values import Flip, from_plain, to_plain
from tests.cases import for_each

MODULE = "tests.adapters.langgraph.sorts"
PERSON = Person(name="ann", address=Address(street="s"))


@for_each(
    ("value", "name"),
    [
        (Inner("x"), "Inner"),
        ([1, {"a": Inner("x")}], "Inner"),
        ({"color": Color.RED}, "Color"),
        ([PERSON], "Person"),
        (Point(1, 2), "Point"),
        (Send("node", {"x": [HumanMessage("y"), Inner("x")]}), "Inner"),
        (pydantic.SecretStr("s"), "SecretStr"),
    ],
)
def test_a_type_that_is_not_allowed_is_refused_at_save(value: Any, name: str) -> None:
    with pytest.raises(Unsupported) as caught:
        to_plain(serde_for(), value)

    assert f".{name} is not allowed" in caught.value.problem
    assert f"allow=[{name}]" in caught.value.problem


@pytest.mark.parametrize("value", [Inner("x"), [1, {"a": Inner("x")}], [PERSON], Send("node", {"x": Inner("x")})])
def test_a_type_that_is_not_allowed_is_refused_at_load(value: Any) -> None:
    plain = to_plain(serde_for(True), value)

    with pytest.raises(Unsupported, match=r"allow=\["):
        from_plain(serde_for(), plain, "$.values.x")

    assert from_plain(serde_for(True), plain) == value


def test_the_error_does_not_show_the_value() -> None:
    with pytest.raises(Unsupported) as caught:
        to_plain(serde_for(), Inner("secret"))

    assert "secret" not in str(caught.value)


def test_a_subclass_of_datetime_is_refused_even_where_all_is_allowed() -> None:
    with pytest.raises(Unsupported, match=r"never loads a value of type .*Stamp"):
        to_plain(serde_for(True), {"at": Stamp(2026, 1, 1)})


def test_a_proof_for_one_serde_is_none_for_another() -> None:
    to_plain(serde_for([Person, Address]), PERSON)

    with pytest.raises(Unsupported):
        to_plain(serde_for(), PERSON)


def test_loads_on_other_threads_and_tasks_do_not_meet() -> None:
    blocked = to_plain(serde_for(True), [Inner("x")])
    fine = to_plain(serde_for(), [AIMessage("x", id=str(n)) for n in range(50)])
    serde = serde_for()

    def refused() -> bool:
        try:
            from_plain(serde, blocked)
        except Unsupported:
            return True
        return False

    def loaded() -> bool:
        return len(from_plain(serde, fine)) == 50

    async def mixed() -> list[bool]:
        return await asyncio.gather(*(asyncio.to_thread(work) for _ in range(40) for work in (refused, loaded)))

    with ThreadPoolExecutor(8) as pool:
        results = [pool.submit(work) for _ in range(100) for work in (refused, loaded)]
    assert all(result.result() for result in results)
    assert all(asyncio.run(mixed()))


def test_a_load_within_a_load_keeps_its_refusals_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = to_plain(serde_for(True), Inner("x"))
    serde = serde_for([Holder])
    fine = to_plain(serde, Holder(1))
    mixed = serde.dumps_typed([Holder(1), Color.RED])

    def look_inside(self: Holder) -> None:
        with pytest.raises(Unsupported):
            from_plain(serde_for(), blocked)

    monkeypatch.setattr(Holder, "__post_init__", look_inside, raising=False)

    assert from_plain(serde, fine).held == 1
    with pytest.raises(Unsupported, match="Color"):
        from_plain(serde, {"$ext": "typed", "payload": [mixed[0], mixed[1]]})


# -- what cannot be rebuilt -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Counted("x"), "$"),
        ([{"a": Counted("x")}], "$[0].a"),
        (Holder(Counted("x")), "$.held"),
        (Send("n", Holder([Counted("x")])), "$.arg.held[0]"),
        ({"lid": Box.Lid(1)}, "$.lid"),
    ],
)
def test_a_class_that_cannot_be_rebuilt_is_refused_at_save(value: Any, path: str) -> None:
    with pytest.raises(Unsupported, match="would be loaded as") as caught:
        to_plain(serde_for(True), value)

    assert caught.value.path == path


def test_another_class_of_the_same_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass
    class Other:
        name: str

    Other.__name__ = "Inner"
    Other.__module__ = MODULE

    with pytest.raises(Unsupported, match="would be loaded as") as caught:
        to_plain(serde_for([Inner]), [1, {"a": Other("x")}])

    assert caught.value.path == "$[1].a"


def test_a_model_that_does_not_take_what_it_dumps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Picky(pydantic.BaseModel):
        address: Address

        @pydantic.model_validator(mode="before")
        @classmethod
        def only_models(cls, data: Any) -> Any:
            if not isinstance(data["address"], Address):
                raise ValueError("no model")  # noqa: TRY004 - what pydantic takes for a refusal
            return data

    Picky.__module__ = MODULE
    monkeypatch.setattr(sorts, "Picky", Picky, raising=False)

    with pytest.raises(Unsupported, match=r"Address would be loaded as dict") as caught:
        to_plain(serde_for([Picky]), [Picky(address=Address(street="s"))])

    assert caught.value.path == "$[0].address"


def test_what_a_model_keeps_to_itself_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client(pydantic.BaseModel):
        name: str
        link: Any = pydantic.Field(default="none", exclude=True)

    Client.__module__ = MODULE
    monkeypatch.setattr(sorts, "Client", Client, raising=False)
    serde = serde_for([Client])

    loaded = from_plain(serde, to_plain(serde, [Client(name="x", link=sorts.Plain())]))

    assert loaded == [Client(name="x")]


# -- allow= -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Inner, (MODULE, "Inner"), list[Inner], Outer])
def test_allows_what_is_named(kind: Any) -> None:
    serde = serde_for([kind])

    assert from_plain(serde, to_plain(serde, Inner("x"))) == Inner("x")


@pytest.mark.parametrize(
    "value", [PERSON, PERSON.address, Color.RED, Point(1, 2), Level.LOW, Outer(Inner("a"), []), Inner("x")]
)
def test_allows_what_the_annotations_of_a_state_name(value: Any) -> None:
    serde = serde_for([State])

    assert from_plain(serde, to_plain(serde, value)) == value


def test_a_state_allows_nothing_that_it_does_not_name() -> None:
    with pytest.raises(Unsupported):
        to_plain(serde_for([State]), Holder(1))


def test_annotations_do_not_allow_classes_that_are_no_data() -> None:
    @dataclasses.dataclass
    class Runs:
        logger: logging.Logger
        names: list[Color]

    Runs.__annotations__ = {"logger": logging.Logger, "names": list[Color]}

    assert serde_for([Runs])._allowed_msgpack_modules == {(__name__, "Runs"), (MODULE, "Color")}


def test_follows_what_it_can_where_an_annotation_cannot_be_resolved() -> None:
    @dataclasses.dataclass
    class Half:
        inner: Inner

    Half.__annotations__ = {"inner": Inner, "other": "OnlyForTypeCheckers"}

    assert (MODULE, "Inner") in (serde_for([Half])._allowed_msgpack_modules or ())  # type: ignore[operator]  # not True


def test_follows_schemas_that_name_themselves() -> None:
    @dataclasses.dataclass
    class Node:
        next: Any = None

    Node.__annotations__ = {"next": list[Node]}

    assert serde_for([Node])._allowed_msgpack_modules == {(__name__, "Node")}


def test_allow_true_is_as_permissive_as_langgraph() -> None:
    serde = serde_for(True)

    assert from_plain(serde, to_plain(serde, [Inner("x")])) == [Inner("x")]


@for_each("allow", ["app", Inner, (MODULE, "Inner"), 5, [5], ["app.State"], [("a", "b", "c")], False, None])
def test_refuses_an_allow_that_names_nothing(allow: Any) -> None:
    with pytest.raises(InvalidArgument, match="allow="):
        serde_for(allow)


def test_is_strict_whatever_the_environment_says() -> None:
    assert serde_for()._allowed_msgpack_modules is None


def test_a_saver_can_be_given_more_types() -> None:
    saver = InMemorySaver(serde=serde_for([Color])).with_allowlist({(MODULE, "Inner")})

    plain = to_plain(saver.serde, [Inner("x"), Color.RED])

    assert from_plain(saver.serde, plain) == [Inner("x"), Color.RED]


def test_an_encrypting_saver_can_be_given_more_types() -> None:
    saver = InMemorySaver(serde=EncryptedSerializer(Flip(), serde_for())).with_allowlist({(MODULE, "Inner")})

    assert from_plain(saver.serde, to_plain(saver.serde, [Inner("x")])) == [Inner("x")]


def test_classes_that_two_threads_save_at_the_same_time_are_both_built(monkeypatch: pytest.MonkeyPatch) -> None:
    values = Values(serde_for(), is_default=True)
    allow = JsonPlusSerializer.with_msgpack_allowlist
    others: list[Any] = [Point(1, 2)]
    stored: list[Any] = []

    def meanwhile(serde: JsonPlusSerializer, names: Any) -> JsonPlusSerializer:
        while others:
            with ThreadPoolExecutor(1) as pool:
                stored.append(pool.submit(values.to_plain, others.pop()).result())
        return allow(serde, names)

    monkeypatch.setattr(JsonPlusSerializer, "with_msgpack_allowlist", meanwhile)
    stored.append(values.to_plain(Inner("x")))

    assert [values.from_plain(each) for each in stored] == [Point(1, 2), Inner("x")]
    assert [type(values.from_plain(each)) for each in stored] == [Point, Inner]


def test_a_class_is_built_while_another_thread_saves_its_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    values = Values(serde_for(), is_default=True)
    stored = Values(serde_for(), is_default=True).to_plain(Inner("x"))
    allow = JsonPlusSerializer.with_msgpack_allowlist
    loaded: list[Any] = []

    def meanwhile(serde: JsonPlusSerializer, names: Any) -> JsonPlusSerializer:
        if not loaded:
            loaded.append(None)
            with ThreadPoolExecutor(1) as pool:
                loaded[0] = pool.submit(values.from_plain, stored).result()
        return allow(serde, names)

    monkeypatch.setattr(JsonPlusSerializer, "with_msgpack_allowlist", meanwhile)
    values.to_plain(Inner("y"))

    assert loaded == [Inner("x")]
