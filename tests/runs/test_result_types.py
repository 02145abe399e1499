"""Results of calls as classes: by the annotation of a tool, by `type=`, or by the name of a client's response class."""

from __future__ import annotations

import asyncio
import dataclasses
import fractions
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import anthropic
import openai
import pydantic
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

import holdfast
from holdfast import Happened, HoldfastError, InvalidArgument, Unsupported
from holdfast.redaction import api_keys
from tests.cases import for_each
from tests.examples.serving import Server, serving
from tests.runs.conftest import Crash, World

if TYPE_CHECKING:
    from socket import socket


@dataclasses.dataclass
class Receipt:
    number: int
    lines: list[Line] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Line:
    text: str


class Paid(pydantic.BaseModel):
    kind: str = "paid"
    number: int = 1


class Refused(pydantic.BaseModel):
    reason: str


class Row(TypedDict):
    receipt: Receipt


class Unstorable:
    pass


def crashing(world: World, thread: str, function: Any, **args: Any) -> Any:
    """The first result of a tool, and the one that a process gets which resumes the run."""
    with world.dying(thread, world.open(), start={}) as run:
        first = run.tool(function, args)
    with world.open().run(thread) as run:
        again = run.tool(function, args)
    return first, again


# -- tools ------------------------------------------------------------------------------------------------------------


def pay() -> Receipt:
    return Receipt(7, [Line("ink")])


def either(number: int) -> Paid | Refused:
    return Paid(number=number) if number else Refused(reason="no money")


def where() -> Path:
    return Path("/srv")


def rows() -> list[Row]:
    return [{"receipt": Receipt(1)}]


def maybe() -> Receipt | None:
    return None


def message() -> AnyMessage:
    return AIMessage("paid", id="1")


def messages() -> list[AnyMessage]:
    return [HumanMessage("pay", id="0"), AIMessage("paid", id="1")]


def waited() -> Awaitable[Receipt]:
    raise NotImplementedError


def test_a_tool_returns_what_its_annotation_says_also_from_the_journal(world: World) -> None:
    assert crashing(world, "pay", pay) == (Receipt(7, [Line("ink")]),) * 2
    assert crashing(world, "paid", either, number=3) == (Paid(number=3),) * 2
    assert crashing(world, "refused", either, number=0) == (Refused(reason="no money"),) * 2
    assert crashing(world, "where", where) == (Path("/srv"),) * 2
    assert crashing(world, "rows", rows) == ([{"receipt": Receipt(1)}],) * 2
    assert crashing(world, "maybe", maybe) == (None, None)
    assert crashing(world, "message", message) == (AIMessage("paid", id="1"),) * 2
    assert crashing(world, "messages", messages) == ([HumanMessage("pay", id="0"), AIMessage("paid", id="1")],) * 2
    assert world.open().effects("pay")[0].result == {"number": 7, "lines": [{"text": "ink"}]}


def test_an_async_tool_returns_what_its_annotation_says(world: World) -> None:
    async def charge() -> Receipt:
        return Receipt(1)

    async def main() -> list[Any]:
        results: list[Any] = []
        async with world.open().aio.run("t", start={}) as run:
            results += [await run.tool(charge), await run.tool(charge, key="again")]
        return results

    assert asyncio.run(main()) == [Receipt(1), Receipt(1)]


def test_an_annotation_is_a_promise_that_a_result_may_break(world: World) -> None:
    """The tool has acted. Plain data is recorded as it is, and is returned as it is."""

    def careless() -> Receipt:
        return {"number": 1, "lines": []}  # type: ignore[return-value]

    assert crashing(world, "t", careless) == ({"number": 1, "lines": []},) * 2


def test_a_result_that_is_neither_declared_nor_plain_is_in_doubt_as_before(world: World) -> None:
    calls: list[int] = []

    @holdfast.tool(name="act")
    def act() -> Any:
        calls.append(1)
        return Receipt(1)

    with (
        pytest.raises(Unsupported, match=r"annotate the function: -> tests\.runs\.test_result_types\.Receipt"),
        world.open().run("t", start={}) as run,
    ):
        run.tool(act)

    @holdfast.tool(name="act")
    def act_typed() -> Receipt:
        calls.append(1)
        return Receipt(1)

    hf = world.open(act_typed)
    with pytest.raises(HoldfastError, match="settle"), hf.run("t") as run:
        run.tool(act_typed)
    hf.settle("t", 1, Happened(Receipt(5)))
    with hf.run("t") as run:
        assert run.tool(act_typed) == Receipt(5)
    assert calls == [1]


def test_what_a_person_or_a_probe_says_has_the_type_of_the_tool(world: World) -> None:
    said: list[Any] = [Receipt(1), {"number": 2, "lines": []}, "no receipt"]
    for number, told in enumerate(said):

        def probe(told: Any = told) -> Any:
            return Happened(told)

        @holdfast.tool(probe=probe)
        def charge() -> Receipt:
            raise Crash

        @holdfast.tool(name="ask")
        def ask() -> Receipt:
            raise Crash

        wanted = told if isinstance(told, Receipt | str) else Receipt(2)
        hf = world.open(charge, ask)
        with world.dying(f"probe {number}", hf, start={}) as run:
            run.tool(charge)
        for _ in range(2):
            with world.dying(f"probe {number}", hf) as run:
                assert run.tool(charge) == wanted
        for known in (True, False):
            if isinstance(told, Receipt) and not known:
                continue  # a handle without the tool takes plain data only
            thread = f"person {number} {known}"
            with world.dying(thread, hf, start={}) as run:
                run.tool(ask)
            with hf.run(thread) as run:
                run.tool(ask)
            (hf if known else world.open()).settle(thread, 1, Happened(told))
            with hf.run(thread) as run:
                assert run.tool(ask) == wanted


def test_an_unknown_outcome_and_an_error_are_plain(world: World) -> None:
    @holdfast.tool(errors="result")
    def fails() -> Receipt:
        raise OSError("no paper")

    assert crashing(world, "fails", fails) == ({"error": "OSError: no paper"},) * 2

    @holdfast.tool(in_doubt="give_up")
    def dies() -> Receipt:
        raise Crash

    with world.dying("dies", start={}) as run:
        run.tool(dies)
    for _ in range(2):
        with world.dying("dies") as run:
            assert run.tool(dies)["outcome"] == "unknown"


def test_undo_gets_the_result_that_the_tool_returned(world: World) -> None:
    undone: list[Any] = []

    def refund(result: Any) -> None:
        undone.append(result)

    @holdfast.tool(undo=refund)
    def charge() -> Receipt:
        return Receipt(3)

    hf = world.open(charge)
    with hf.run("t", start={}) as run:
        for step in run.steps():
            if step == 3:
                break
            run.tool("charge", key=str(step))
    hf.undo("t", to="@1")
    assert undone == [Receipt(3)]


# -- declarations -----------------------------------------------------------------------------------------------------


def unknown() -> Unstorable:
    raise NotImplementedError


def nested() -> dict[str, list[Unstorable]]:
    raise NotImplementedError


def streaming() -> Iterator[str]:
    raise NotImplementedError


async def streaming_async() -> AsyncIterator[str]:
    raise NotImplementedError
    yield ""


REFUSED = [unknown, nested, streaming, streaming_async]


@for_each("function", REFUSED)
def test_a_type_that_cannot_be_stored_is_refused_when_the_tool_is_declared(function: Any) -> None:
    with pytest.raises(InvalidArgument, match=rf"{function.__name__}.*returns.*"):
        holdfast.tool(function)
    with pytest.raises(InvalidArgument, match=rf"{function.__name__}.*returns.*"):
        holdfast.open("memory:", tools=[function])


def test_an_undeclared_function_is_refused_before_it_is_called(world: World) -> None:
    with pytest.raises(InvalidArgument, match="Unstorable"), world.open().run("t", start={}) as run:
        run.tool(unknown)
    assert world.open().effects("t") == []


def anything() -> Any: ...
def an_object() -> object: ...
def nothing() -> None: ...
def mapping() -> Mapping[str, Any]: ...  # type: ignore[empty-body]
def str_like() -> str | bytes | Path | None: ...
def lists() -> list[int] | tuple[int, ...]: ...  # type: ignore[empty-body]
def type_checking_only() -> socket: ...  # type: ignore[empty-body]


def test_plain_annotations_need_no_type() -> None:
    for function in (anything, an_object, nothing, mapping, lists, type_checking_only, lambda: 1, print):
        holdfast.tool(function)


def test_a_class_that_is_defined_later_is_found_at_the_call(world: World) -> None:
    module: Any = type(sys)("later")
    source = "def charge() -> 'Later':\n    return Later(1)\n"
    exec(source, module.__dict__)  # noqa: S102 - a module of this test
    declared = holdfast.tool(module.charge)
    module.Later = dataclasses.make_dataclass("Later", [("number", int)])
    first, again = crashing(world, "t", declared)
    assert type(again) is module.Later
    assert first == again
    module.Later = Unstorable
    exec(source, module.__dict__)  # noqa: S102
    with pytest.raises(InvalidArgument, match="Unstorable"), world.open().run("u", start={}) as run:
        run.tool(module.charge)
    assert world.open().effects("u") == []


class Account(pydantic.BaseModel):
    password: pydantic.SecretStr


def open_account() -> Account:
    return Account(password=pydantic.SecretStr("s3cret"))


def test_a_tool_that_returns_a_secret_is_not_called_unless_the_store_redacts(world: World) -> None:
    why = r"open_account was not called.*secret.*redact="
    with pytest.raises(InvalidArgument, match=why), world.open().run("t", start={}) as run:
        run.tool(open_account)
    assert world.open().effects("t") == []
    with world.open(redact=api_keys).run("u", start={}) as run:
        assert run.tool(open_account).password.get_secret_value() == "[redacted]"


# -- models -----------------------------------------------------------------------------------------------------------


def test_a_reply_that_cannot_be_stored_is_asked_again_by_the_mended_program(world: World) -> None:
    asked: list[int] = []

    def ask() -> Any:
        asked.append(1)
        return Receipt(len(asked))

    with pytest.raises(Unsupported, match=r"pass type= to run\.model"), world.open().run("t", start={}) as run:
        run.model(ask)
    assert [effect.status for effect in world.open().effects("t")] in ([], ["failed"])
    with world.open().run("t") as run:
        assert run.model(ask, type=Receipt) == Receipt(2)
    assert len(asked) == 2
    with world.open().run("t") as run:
        assert run.model(ask, type=Receipt) == Receipt(2)
    assert len(asked) == 2


def test_a_reply_that_cannot_be_stored_is_asked_again_after_a_crash(world: World) -> None:
    replies: list[Any] = [object(), "fine"]
    with world.dying("t", start={}) as run, pytest.raises(Unsupported):
        run.model(lambda: replies.pop(0), key="a")
    with world.open().run("t") as run:
        assert run.model(lambda: replies.pop(0), key="a") == "fine"


def test_a_program_that_goes_on_after_the_error_gets_it_again(world: World) -> None:
    replies: list[Any] = [object(), "fallback"]
    for _ in range(2):
        start: dict[str, Any] = {"start": {}} if len(replies) == 2 else {}
        with world.dying("t", **start) as run:
            with pytest.raises(HoldfastError, match="cannot be recorded"):
                run.model(lambda: replies.pop(0), key="first")
            assert run.model(lambda: replies.pop(0), key="second") == "fallback"
    assert replies == []


def test_a_registered_class_is_found_by_its_name(world: World) -> None:
    holdfast.codec.register(fractions.Fraction, str, fractions.Fraction, name="a fraction")

    def half() -> Any:
        return fractions.Fraction(1, 2)

    with world.dying("t", start={}) as run:
        assert run.model(half) == fractions.Fraction(1, 2)
        assert list(run.stream(lambda: iter([fractions.Fraction(1, 3), 5, fractions.Fraction(1, 4)]), key="s")) == [
            fractions.Fraction(1, 3),
            5,
            fractions.Fraction(1, 4),
        ]
    with world.open().run("t") as run:
        assert run.model(half) == fractions.Fraction(1, 2)
        assert list(run.stream(lambda: iter([]), key="s")) == [fractions.Fraction(1, 3), 5, fractions.Fraction(1, 4)]
    assert [effect.result for effect in world.open().effects("t")] == ["1/2", ["1/3", 5, "1/4"]]


def test_a_result_with_an_unknown_name_is_refused(world: World) -> None:
    """As after the registration was removed, or in forged data."""
    holdfast.codec.register(fractions.Fraction, str, fractions.Fraction, name="removed later")
    with world.dying("t", start={}) as run:
        run.model(lambda: fractions.Fraction(1, 2), key="a")
    holdfast.codec.register(fractions.Fraction, str, fractions.Fraction, name="another name")
    asked: list[int] = []
    with (
        pytest.raises(InvalidArgument, match=r"call 1\).*'removed later' is neither registered.*not called again"),
        world.open().run("t") as run,
    ):
        run.model(lambda: asked.append(1), key="a")
    assert asked == []
    with world.open().run("t") as run:
        assert run.model(lambda: asked.append(1), key="a", type=fractions.Fraction) == fractions.Fraction(1, 2)


# -- the clients ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


TASK: Any = {"role": "user", "content": "Order three packs of paper and one bottle of ink."}


def clients(server: Server) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    common: dict[str, Any] = {"api_key": "none", "max_retries": 0}
    of_openai = {"base_url": f"{server.address}/v1", **common}
    of_anthropic = {"base_url": server.address, **common}
    asked = {"model": "m", "messages": [TASK]}
    yield (
        openai.OpenAI(**of_openai).chat.completions.create,
        openai.AsyncOpenAI(**of_openai).chat.completions.create,
        asked,
    )
    yield (
        anthropic.Anthropic(**of_anthropic).messages.create,
        anthropic.AsyncAnthropic(**of_anthropic).messages.create,
        {**asked, "max_tokens": 99},
    )


def same(one: Any, other: Any) -> bool:
    return (
        type(one) is type(other)
        and one == other
        and one.to_json(warnings=False) == other.to_json(warnings=False)
        and one.model_fields_set == other.model_fields_set
        and getattr(one, "_request_id", None) == getattr(other, "_request_id", None)
    )


def test_replies_of_the_clients_are_recorded_and_restored_as_what_they_were(world: World, server: Server) -> None:
    for number, (create, _, asked) in enumerate(clients(server)):
        paid = len(server.requests)
        with world.dying(f"t{number}", start={}) as run:
            reply = run.model(create, **asked)
        with world.open().run(f"t{number}") as run:
            again = run.model(create, **asked)
        assert type(reply).__module__.startswith(("openai.types", "anthropic.types"))
        assert same(reply, again)
        assert len(server.requests) == paid + 1
        effect = world.open().effects(f"t{number}")[0]
        assert effect.result["model"] == reply.model  # plain data for people and for guards


def test_chunks_of_the_clients_are_recorded_and_restored_as_what_they_were(world: World, server: Server) -> None:
    for number, (create, _, asked) in enumerate(clients(server)):
        paid = len(server.requests)
        with world.dying(f"t{number}", start={}) as run:
            chunks = list(run.stream(create, **asked, stream=True))
        with world.open().run(f"t{number}") as run:
            again = list(run.stream(create, **asked, stream=True))
        assert len(chunks) > 3
        assert all(map(same, chunks, again))
        assert len(chunks) == len(again)
        assert len(server.requests) == paid + 1


def test_async_clients_too(world: World, server: Server) -> None:
    async def replies(thread: str, create: Any, asked: dict[str, Any]) -> list[Any]:
        received: list[Any] = []
        async with world.open().aio.run(thread, start={}) as run:
            received.append(await run.model(create, **asked))
            received += [chunk async for chunk in run.stream(create, **asked, stream=True)]
        return received

    for number, (_, create, asked) in enumerate(clients(server)):
        paid = len(server.requests)
        first = asyncio.run(replies(f"t{number}", create, asked))
        again = asyncio.run(replies(f"t{number}", create, asked))
        assert all(map(same, first, again))
        assert len(first) == len(again)
        assert len(server.requests) == paid + 2


def test_a_stream_is_not_a_reply(world: World, server: Server) -> None:
    for number, (create, _, asked) in enumerate(clients(server)):
        with (
            pytest.raises(Unsupported, match=r"use run\.stream"),
            world.open().run(f"t{number}", start={}) as run,
        ):
            run.model(create, **asked, stream=True)


def test_a_stream_that_is_left_early_is_closed(world: World, server: Server) -> None:
    closed: list[Any] = []

    class Chunks:
        """As the clients' streams: an iterator with `close`."""

        def __iter__(self) -> Iterator[str]:
            return iter(["a", "b"])

        def close(self) -> None:
            closed.append(1)

    with world.open().run("t", start={}) as run:
        for _ in run.stream(Chunks):
            break
    assert closed == [1]


def test_the_tokens_of_a_clients_reply_count_for_a_budget(world: World, server: Server) -> None:
    for number, (create, _, asked) in enumerate(clients(server)):
        with world.open().run(f"t{number}", start={}, guards=[holdfast.Budget(tokens=10**9)]) as run:
            reply = run.model(create, **asked)
            run.finish()
        usage = world.open().effects(f"t{number}")
        assert reply.usage is not None
        assert usage[0].status == "done"
