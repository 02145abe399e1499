"""Redaction: texts are changed before they are stored, wherever they stand; what the program holds stays as it is."""

from __future__ import annotations

import asyncio
import copy
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest

import holdfast
from holdfast import Happened, Holdfast, InvalidArgument, Run, Thread, Unsupported
from holdfast import redaction as redacting
from holdfast.redaction import Redaction, api_keys
from holdfast.threads.scan import checkpoint_at, thread_named, with_refs
from tests.cases import for_each

SECRET = "hunter2-is-my-password"  # noqa: S105 - to be found, or not


def hide(text: str) -> str:
    return text.replace(SECRET, "[hidden]")


# -- values -----------------------------------------------------------------------------------------------------------


def test_every_text_of_a_value_is_redacted_and_the_value_itself_is_not_changed() -> None:
    now = datetime.now(UTC)
    value = {
        "said": [f"it is {SECRET}", ("pair", SECRET), {SECRET}, frozenset({SECRET}), {"deep": [{"x": SECRET}]}],
        SECRET: 1,
        ("key", SECRET): 2,
        "other": [1, True, None, 2.5, b"hunter2-is-my-password", now],
    }
    before = copy.deepcopy(value)
    assert Redaction(hide).value(value) == {
        "said": [
            "it is [hidden]",
            ("pair", "[hidden]"),
            {"[hidden]"},
            frozenset({"[hidden]"}),
            {"deep": [{"x": "[hidden]"}]},
        ],
        "[hidden]": 1,
        ("key", "[hidden]"): 2,
        "other": [1, True, None, 2.5, b"hunter2-is-my-password", now],
    }
    assert value == before


def test_what_needs_no_redaction_is_given_as_it_is() -> None:
    value = {"said": ["hello", ("a", "b")], "n": 1}
    assert Redaction(hide).value(value) is value
    mixed = {"same": ["hello"], "other": SECRET}
    assert Redaction(hide).value(mixed)["same"] is mixed["same"]
    assert Redaction().value({"x": SECRET}) == {"x": SECRET}


@pytest.mark.parametrize(
    "add",
    [
        lambda state: state["said"].append(SECRET),
        lambda state: state["by"].update(bob=SECRET),
        lambda state: state.update(said=[SECRET]),
        lambda state: state["deep"][0][0].append({"x": SECRET}),
    ],
)
@pytest.mark.parametrize("method", [Thread.save, lambda thread, state: thread.append("list", [state])])
@pytest.mark.parametrize("kind", [None, dict[str, Any]])
def test_what_another_thread_adds_during_a_save_is_not_stored_unredacted(
    kind: Any, method: Callable[[Thread, Any], object], add: Callable[[Any], object]
) -> None:
    def adding(text: str) -> str:
        if text == "last":
            add(state)
        return hide(text)

    state = {"said": ["hello"], "by": {"anna": "hello"}, "deep": [([],)], "end": "last"}
    with holdfast.open("memory:", redact=adding) as hf:
        method(hf.thread("t", type=kind), state)
        latest = hf.thread("t").latest()
        assert SECRET in str(state)
        assert latest is not None
        assert SECRET not in str(latest.state)


@pytest.mark.parametrize("verb", ["finish", "tool", "wait", "metadata", "undo"])
def test_what_another_thread_adds_to_a_value_is_not_recorded_unredacted(verb: str) -> None:
    def adding(text: str) -> str:
        if text == "last":
            value["said"].append(SECRET)
        return hide(text)

    @holdfast.tool(effect="irreversible", undo=lambda x: value)
    def act(x: Any) -> None: ...

    value: dict[str, Any] = {"said": ["hello"], "end": "last"}
    with holdfast.open("memory:", redact=adding, tools=[act]) as hf:
        with hf.run("t", start={}) as run:
            if verb == "finish":
                run.finish(value)
            elif verb == "wait":
                run.wait("allowed?", value)
            elif verb != "metadata":
                run.tool(act, {"x": value if verb == "tool" else 1})
        if verb == "metadata":
            hf.thread("t").save({}, metadata=value)
        elif verb == "undo":
            hf.undo("t", to="@0")
        assert SECRET in str(value)
        shown = str([*hf.effects("t"), *hf.waiting(), hf.run_info("t"), *hf.thread("t").history()])
        assert "hello" in shown
        assert SECRET not in shown


def test_keys_that_are_redacted_to_the_same_cost_no_value() -> None:
    redaction = Redaction(lambda _: "[hidden]")
    assert redaction.value({"a": 1, "b": 2, "c": 3}) == {"[hidden]": 1, "[hidden] (2)": 2, "[hidden] (3)": 3}
    with pytest.raises(Unsupported, match="two keys"):
        redaction.value({("a",): 1, ("b",): 2})


def test_equal_texts_are_redacted_once_as_long_as_they_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(text: str) -> str:
        asked.append(text)
        return hide(text)

    redaction = Redaction(counted)
    for _ in range(3):
        redaction.value([SECRET, "hello", {"hello": SECRET}])
    assert asked == [SECRET, "hello"]
    monkeypatch.setattr(redacting, "_REMEMBERED", 10_000)
    for number in range(1000):
        redaction.text(f"{number}")
    assert len(redaction._young) + len(redaction._old) < 300
    assert redaction.text(SECRET) == "[hidden]"


def out_of_reach(text: str) -> str:
    return text[1000]


def nothing(text: str) -> None:
    return None


def raw(text: str) -> bytes:
    return text.encode()


@pytest.mark.parametrize("broken", [out_of_reach, nothing, raw])
def test_a_function_that_fails_lets_nothing_pass(broken: Callable[[str], Any]) -> None:
    with holdfast.open("memory:", redact=broken) as hf:
        with pytest.raises(Unsupported) as refused:
            hf.thread("t").save({"x": SECRET})
        assert SECRET not in str(refused.value)
        assert hf.thread("t").latest() is None
    assert Redaction(broken).message(SECRET) == "[redacted]"


def test_a_value_that_holds_itself_is_refused_as_it_is_without_redaction() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with holdfast.open("memory:", redact=hide) as hf, pytest.raises(Unsupported):
        hf.thread("t").save({"x": endless})


def test_redact_must_be_a_function() -> None:
    with pytest.raises(InvalidArgument, match="redact"):
        holdfast.open("memory:", redact="sk-…")  # type: ignore[arg-type] # what is refused


# -- what looks like a key --------------------------------------------------------------------------------------------

KEYS = [
    "sk-abcdefghijklmnopqrst1234567890",
    "sk-proj-abc_DEF-ghijklmnopqrst1234567890",
    "sk-ant-api03-abcdefghijklmnopqrstuvwxyz-1234_AA",
    "sk-or-v1-0123456789abcdef0123456789abcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "ASIAIOSFODNN7EXAMPLE",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz",
    "glpat-abcdefghij0123456789",
    "xoxb-123456789012-abcdefghijkl",
    "xapp-1-A0123456789-abcdefgh",
    "AIzaSyA-1234567890abcdefghijklmnopqrstu",
    "ya29.a0AfH6SMBabcdefghijklmn",
    "GOCSPX-abcdefghijklmnopqrstuvwx",
    "sk_live_abcdefghijklmnop",
    "rk_test_abcdefghijklmnop",
    "whsec_abcdefghijklmnopqrstuvwx",
    "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "gsk_abcdefghijklmnopqrstuvwxyz0123456789",
    "npm_abcdefghijklmnopqrstuvwxyz0123456789",
    "SG.abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG",
    "SK0123456789abcdef0123456789abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nabc\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n-----END OPENSSH PRIVATE KEY-----",
]


@for_each("key", KEYS)
def test_keys_are_found_wherever_they_stand(key: str) -> None:
    assert api_keys(key) == "[redacted]"
    assert api_keys(f"export KEY={key}") == "export KEY=[redacted]"
    shown = api_keys(f'{{"key": "{key}"}}')
    assert key[:20] not in shown
    assert shown.startswith('{"key": "[redacted]')


@for_each(
    ("text", "shown"),
    [
        ("Authorization: Bearer abcdef0123456789xyz", "Authorization: Bearer [redacted]"),
        ("authorization: basic dXNlcjpwYXNzd29yZA==", "authorization: basic [redacted]"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws_secret_access_key = [redacted]"),
        ("postgresql://me:pass:word@host/db", "postgresql://me:[redacted]@host/db"),
        ("redis://:secret@host:6379", "redis://:[redacted]@host:6379"),
        ("postgresql://me:p@ss@w@rd@host/db?a=b@c", "postgresql://me:[redacted]@host/db?a=b@c"),
        ("amqp://me:ab/cd+ef==@host", "amqp://me:[redacted]@host"),
        ("redis://:12#34?5@host", "redis://:[redacted]@host"),
        ('{"url": "mysql://a:b@c", "to": "me@there"}', '{"url": "mysql://a:[redacted]@c", "to": "me@there"}'),
        ('["mysql://a:b@c","me@example.org"]', '["mysql://a:[redacted]@c","me@example.org"]'),
        ("mysql://a:b@c;me@example.org", "mysql://a:[redacted]@c;me@example.org"),
        ("two: AKIAIOSFODNN7EXAMPLE, AKIAIOSFODNN7EXAMPLF.", "two: [redacted], [redacted]."),
    ],
)
def test_what_stands_around_a_key_stays(text: str, shown: str) -> None:
    assert api_keys(text) == shown


@for_each(
    "text",
    [
        "",
        "The bearer of this letter is a friend of mine.",
        "use sk-learn, task-oriented-programming-is-fine, risk-adjusted-return-of-the-fund",
        "https://example.org:8080/path@2?user:x@y",
        "https://example.org:8080/mail?to=me@example.org",
        "a digest: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "AKIA is how they begin; ghp_ and xoxb- too",
        "mail me@example.org at 10:30",
    ],
)
def test_other_texts_pass_as_they_are(text: str) -> None:
    assert api_keys(text) == text


@for_each(
    "piece",
    [
        "a://b:c/@",
        "a://b:@",
        "sk-",
        "eyJ-",
        "-----BEGIN PRIVATE KEY-----",
        "bearer ",
        "a",
        "a://b:",
        "-----BEGIN ",
        "x-----END",
        "eyJ.",
    ],
)
def test_the_time_grows_with_the_length_of_a_text_only(piece: str) -> None:
    def seconds(characters: int) -> float:
        text = (piece * characters)[:characters]
        started = time.process_time()
        api_keys(text)
        return time.process_time() - started

    assert seconds(320_000) < 100 * seconds(20_000) + 0.5, "a square would be 256 times as long"


# -- threads ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite", "directory"])
def hf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    urls = {"memory": "memory:", "sqlite": f"{tmp_path / 'agent.db'}", "directory": f"dir:{tmp_path / 'agents'}"}
    with holdfast.open(urls[request.param], redact=hide, tools=[announce]) as opened:
        yield opened


@holdfast.tool(effect="idempotent")
def announce(text: str) -> dict[str, str]:
    """Says what it got, so that a test sees it."""
    assert SECRET in text, "the tool itself is called with what the program gave"
    return {"announced": text}


def everything(hf: Holdfast) -> str:
    """All that a handle shows of what is stored."""
    shown: list[Any] = [list(hf.waiting()), list(hf.interrupted())]
    for info in hf.threads():
        thread = hf.thread(info.name)
        shown += [info, hf.progress(info.name), hf.effects(info.name), hf.context.store.run(number_of(hf, info.name))]
        shown += [(checkpoint, thread.load(checkpoint).state) for checkpoint in thread.history()]
    return repr(shown)


def number_of(hf: Holdfast, name: str) -> int:
    found = thread_named(hf.context.store, name)
    assert found is not None
    return found.position.thread


def test_a_checkpoint_says_nothing_but_what_is_redacted(hf: Holdfast) -> None:
    state = {"messages": [{"content": f"it is {SECRET}"}], "notes": SECRET + " " * 20_000, SECRET: [SECRET] * 100}
    before = copy.deepcopy(state)
    saved = hf.thread("t").save(
        state,
        label=f"after {SECRET}",
        tags=[SECRET, "plain"],
        metadata={"user": SECRET, SECRET: [SECRET]},
        reason=SECRET,
        resume_hint=f"say {SECRET}",
    )
    assert state == before
    assert (saved.label, saved.tags, saved.reason) == ("after [hidden]", ("[hidden]", "plain"), "[hidden]")
    assert (saved.metadata, saved.resume_hint) == ({"user": "[hidden]", "[hidden]": ["[hidden]"]}, "say [hidden]")
    loaded = hf.thread("t").load("@after [hidden]").state
    assert loaded["messages"] == [{"content": "it is [hidden]"}]
    assert loaded["notes"].startswith("[hidden]")
    assert loaded["[hidden]"] == ["[hidden]"] * 100
    assert "hunter2" not in everything(hf)


def test_a_save_that_changes_nothing_stores_nothing_new(hf: Holdfast) -> None:
    state = {"messages": [{"content": f"{number} {SECRET}"} for number in range(200)], "long": SECRET * 3000}
    thread = hf.thread("t")
    thread.save(state)
    store = hf.context.store
    assert [*with_refs(store, number_of(hf, "t"))][-1].refs.blobs
    second = thread.save(state)
    row = checkpoint_at(store, number_of(hf, "t"), second.seq)
    assert row is not None
    assert all(span.last == 1 for span in row.refs.spans), "all that it names was written by the first"


@dataclass
class Typed:
    words: list[str]


def test_typed_states_forks_and_async_saves_are_redacted_too(hf: Holdfast) -> None:
    typed = hf.thread("typed", Typed)
    typed.save(Typed([SECRET]))
    latest = typed.latest()
    assert latest is not None
    assert latest.state == Typed(["[hidden]"])
    forked = typed.fork("fork", state=Typed([SECRET, "edited"]))
    assert forked.load("@-1").state == Typed(["[hidden]", "edited"])

    async def save() -> None:
        thread = hf.aio.thread("async")
        await asyncio.gather(*(thread.save({"n": number, "x": SECRET}) for number in range(3)))

    asyncio.run(save())
    assert "hunter2" not in everything(hf)


@dataclass
class Account:
    kind: Literal["checking", "savings"]
    owner: str


def test_what_would_not_fit_its_type_any_more_is_refused() -> None:
    with holdfast.open("memory:", redact=lambda text: text.replace("savings", "[hidden]")) as hf:
        thread = hf.thread("t", Account)
        thread.save(Account("checking", "savings are mine"))
        with pytest.raises(Unsupported, match="fit the type"):
            thread.save(Account("savings", "me"))
        with pytest.raises(Unsupported, match="fit the type"):
            thread.fork("fork", state=Account("savings", "me"))
        latest = thread.latest()
        assert latest is not None
        assert latest.state == Account("checking", "[hidden] are mine")
        with pytest.raises(Unsupported, match="fit the type"), hf.run("r", start={}) as run:
            run.model(lambda: Account("savings", "me"), type=Account)
        assert hf.effects("r") == []  # the model is asked again when the reply can be recorded


def test_aopen_takes_it_too(tmp_path: Path) -> None:
    async def use() -> Any:
        async with await holdfast.aopen(tmp_path / "agent.db", redact=hide) as hf:
            await hf.thread("t").save({"x": SECRET})
            latest = await hf.thread("t").latest()
            return None if latest is None else latest.state

    assert asyncio.run(use()) == {"x": "[hidden]"}


# -- runs -------------------------------------------------------------------------------------------------------------


def use_all(run: Run) -> None:
    """Everything that a run records."""
    use_until_save(run)
    with pytest.raises(ValueError, match=SECRET):
        run.model(fail)
    answer = run.wait("really?", {"about": SECRET})
    assert answer == {"yes": "[hidden]"}
    run.finish({"result": SECRET})


def use_until_save(run: Run) -> None:
    given: list[Any] = [
        run.model(reply, SECRET),
        run.tool("announce", {"text": f"hear {SECRET}"}, key="hear"),
        list(run.stream(lambda: iter(["part", f"{SECRET}!"]))),
    ]
    assert given == [{"reply": "[hidden], [hidden]"}, {"announced": "hear [hidden]"}, ["part", "[hidden]!"]]
    run.progress(1, 2, f"on the way to {SECRET}")
    run.state["seen"] = [SECRET]
    run.save()


def reply(text: str) -> dict[str, str]:
    return {"reply": f"{text}, {SECRET}"}


def fail() -> None:
    raise ValueError("x" * 480 + SECRET)


def test_a_run_gives_what_it_records_and_records_nothing_else(hf: Holdfast, tmp_path: Path) -> None:
    with hf.run("t", start={"seen": [SECRET]}) as run:
        use_all(run)
    assert run.status == "waiting"
    [question] = hf.waiting()
    assert question.payload == {"about": "[hidden]"}
    hf.answer("t", "really?", {"yes": SECRET}, by=f"me, {SECRET}")
    with hf.run("t") as run:
        assert run.state["seen"] == ["[hidden]"]
        use_until_save(run)
        with pytest.raises(ValueError, match=r"x{480}") as again:
            run.model(fail)
        assert "hunter2" not in str(again.value), "it is raised again as it was recorded"
        assert run.wait("really?", {"about": SECRET}) == {"yes": "[hidden]"}
        run.finish({"result": SECRET})
    assert run.result == {"result": "[hidden]"}
    assert "hunter2" not in everything(hf)
    hf.close()
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"hunter2" not in path.read_bytes(), path


def test_reasons_and_what_was_settled_are_redacted(hf: Holdfast) -> None:
    with pytest.raises(KeyError), hf.run("failed", start={}):
        raise KeyError(SECRET)
    with hf.run("halted", start={}) as run:
        run.halt(f"because of {SECRET}")
    with hf.run("cancelled", start={}):
        pass
    hf.cancel("cancelled", f"because of {SECRET}")

    @holdfast.tool
    def act(text: str) -> None:
        raise RuntimeError(text)

    with hf.run("settled", start={}, tools=[act]) as run:
        run.tool(act, {"text": SECRET}, key="act")
    [doubtful] = hf.effects("settled")
    assert doubtful.arguments == {"text": "[hidden]"}
    assert doubtful.error == "RuntimeError: [hidden]"
    hf.settle("settled", doubtful, Happened({"id": SECRET}), by=f"me, {SECRET}")
    hf.settle("settled", doubtful, Happened({"id": SECRET}))
    [settled] = hf.effects("settled")
    assert (settled.result, settled.by) == ({"id": "[hidden]"}, "me, [hidden]")
    hf.submit("work", "submitted", start={"x": SECRET})
    hf.submit("work", "submitted", start={"x": SECRET})
    assert "hunter2" not in everything(hf)
    assert not re.search("hunter2", repr([hf.context.store.run(number) for number in range(1, 6)]))


def test_a_result_that_cannot_be_recorded_leaves_no_text_behind(hf: Holdfast) -> None:
    with pytest.raises(Unsupported), hf.run("t", start={}) as run:
        run.model(lambda: {SECRET: object()})
    assert "hunter2" not in everything(hf)
