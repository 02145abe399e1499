"""Redaction before anything reaches the browser: what agents stored is changed, names and our own words are not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from html import unescape
from itertools import islice
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

import holdfast
from holdfast import Holdfast
from holdfast.redaction import Redaction
from holdfast.types import Checkpoint, Effect, MissingValue, PendingQuestion
from holdfast.ui.redactor import _FIELDS, Redactor
from tests.selection import IN_FULL
from tests.ui import scene
from tests.ui.conftest import Page, hidden

PARTS = ("plots", "recovery", "more", "steps", "head", "chosen")
SECRET = re.compile(r"SECRET\d+X")


def masked(text: str) -> str:
    return "***"


def emptied(text: str) -> str:
    return ""


def hashed(text: str) -> str:
    return str(sum(text.encode("utf-8", "replace")) * 7919)


def no_digits(text: str) -> str:
    return re.sub(r"\d", "#", text)


def addresses(hf: Holdfast) -> Iterator[str]:
    """Every view of everything in a store; in `make test`, of the last two checkpoints of each thread."""
    yield from ("/", "/?part=items", "/threads", "/threads?part=rows", "/threads?part=chips", "/workers", "/store")
    yield from ("/store?part=figures", "/search?q=a", "/search?q=SECRET")
    for info in hf.threads():
        name = quote(info.name, safe="")
        yield f"/thread?name={name}"
        yield from (f"/thread?name={name}&part={part}" for part in PARTS)
        for checkpoint in islice(hf.thread(info.name).history(), None if IN_FULL else 2):
            at = f"?name={name}&at={checkpoint.id}"
            yield from (f"/thread{at}", f"/thread{at}&text=plain&internal=1&edit=1", f"/thread{at}&part=edit")
            yield f"/state{at}"
        yield from (f"/export?name={name}&format={kind}" for kind in ("markdown", "html"))


@pytest.mark.parametrize("redact", [masked, hashed, no_digits, str.upper, emptied])
def test_whatever_a_redaction_does_every_view_is_there(memory: Holdfast, redact: Callable[[str], str]) -> None:
    page = Page(memory, redact=redact, allow_write=True)
    for address in addresses(memory):
        answer = page.ask("GET", address)
        assert answer.status_code == 200, (address, answer.text[-300:])


def test_every_form_still_says_what_it_is_about(memory: Holdfast) -> None:
    with memory.run("q/1", start={"n": 1}) as run:
        for _ in run.steps():
            run.wait("approve 4242?", {"amount": 4242})

    def forms(page: Page) -> set[tuple[str, str]]:
        given = r'action="/act/(\w+)"[^>]*><input[^>]*"seal"[^>]*><input type="hidden" name="given" value="([^"]*)"'
        paths = [address for address in addresses(memory) if not address.startswith(("/state", "/export"))]
        return {found for path in paths for found in re.findall(given, page.ask("GET", path).text)}

    clear = forms(Page(memory, allow_write=True))
    assert {action for action, _ in clear} >= {"fork", "rewind", "answer", "settle", "prune", "label", "cancel"}
    for redact in (masked, hashed, no_digits):
        assert forms(Page(memory, redact=redact, allow_write=True)) == clear, redact.__name__


def test_a_question_is_answered_by_the_form_as_it_is_shown(memory: Holdfast) -> None:
    with memory.run("q/1", start={"n": 1}) as run:
        for _ in run.steps():
            run.wait("approve 4242?", {"amount": 4242})
    page = Page(memory, redact=no_digits, allow_write=True)
    shown = page.get("/").text
    article = next(each for each in shown.split("<article")[1:] if "q/1" in each)
    form = {**hidden(article.partition("</form>")[0]), "value": "true"}
    assert page.confirm("answer", page.send("answer", form)).status_code == 303
    assert not [each for each in memory.waiting() if each.thread == "q/1"]


def test_commands_code_and_what_a_resume_would_do_stay_in_our_own_words(memory: Holdfast) -> None:
    page = Page(memory, redact=masked, allow_write=True)
    text = unescape(page.get("/thread", name=scene.LETTERS).text)
    for said in ("holdfast settle", scene.LETTERS, "needs a decision", "in doubt", "Outcome unknown"):
        assert said in text
    assert "with hf.run('broken')" in unescape(page.get("/thread", name="broken").text)
    assert "post" in text
    assert "approve?" in page.get("/").text


def test_the_same_name_is_the_same_everywhere(memory: Holdfast) -> None:
    page = Page(memory, redact=masked)
    for path in ("/", "/threads", f"/thread?name={scene.APPROVAL}"):
        assert "approve?" in page.ask("GET", path).text


def test_a_label_that_is_redacted_is_not_put_into_a_form(memory: Holdfast) -> None:
    page = Page(memory, redact=masked, allow_write=True)
    id = memory.thread(scene.BOOK).load("@good").id
    box = re.search(r'<input name="label"[^>]*>', page.get("/thread", name=scene.BOOK, at=id).text)
    assert box is not None
    assert "***" not in box[0]
    assert "good" not in box[0]


# -- nothing gets through ----------------------------------------------------------------------------------------------


class Secrets:
    """A secret for each place, and which place each is of."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}

    def __call__(self, place: str) -> str:
        secret = f"SECRET{len(self.places):03}X"
        self.places[secret] = place
        return secret


@pytest.fixture
def told() -> Iterator[tuple[Holdfast, Secrets]]:
    """A store with a secret in every place where a program can put a text that is no name."""
    secret = Secrets()
    with holdfast.open("memory:") as hf:
        thread = hf.thread("plain")
        for _ in range(3):
            call = {"id": secret("call"), "name": secret("tool in a message"), "args": {secret("key"): secret("value")}}
            message = {
                "role": secret("role"),
                "content": secret("content"),
                "name": secret("who"),
                "tool_calls": [call],
            }
            result = {"role": "tool", "tool_call_id": "zz", "content": secret("result in a message")}
            state = {
                "messages": [message, result],
                secret("key"): {secret("inner key"): [secret("item"), (secret("in"),)]},
            }
            thread.save(
                state,
                label=secret("label"),
                tags=(secret("tag"),),
                metadata={secret("meta key"): secret("meta")},
                agent=secret("agent"),
                reason=secret("reason"),
                resume_hint=secret("hint"),
                trigger=secret("trigger"),
                status="failed",
            )
        thread.rewind("@-2")
        _run(hf, secret)
        yield hf, secret


def _run(hf: Holdfast, secret: Secrets) -> None:
    @holdfast.tool(effect="irreversible", in_doubt="ask")
    def post(letter: str) -> str:
        raise ConnectionError(secret("error of a tool"))

    @holdfast.tool(effect="read")
    def look(item: str) -> dict[str, str]:
        return {secret("key of a result"): secret("result")}

    agent = secret("agent of a run")
    for _ in range(2):
        with hf.run("run", start={"messages": []}, tools=[post, look], agent=agent) as run:
            for step in run.steps():
                run.model(lambda: {"content": secret("reply")})
                run.progress(1, 3, secret("progress"))
                run.tool("look", {"item": secret("argument")}, key=f"k{secret('key of a call')}")
                if step == 2:
                    run.tool("post", {"letter": "x"}, key="post")
    with hf.run("asks", start={"messages": []}) as run:
        for _ in run.steps():
            run.wait("question", {secret("key of a payload"): secret("payload")})
    with suppress(ValueError), hf.run("failed", start={"x": 1}):
        raise ValueError(secret("failure"))
    with hf.run("halted", start={"x": 1}) as run:
        for _ in run.steps():
            run.halt(secret("why it was halted"))


def test_nothing_that_a_program_wrote_gets_through(told: tuple[Holdfast, Secrets]) -> None:
    hf, secret = told
    seen: set[str] = set()
    for page, is_redacted in (
        (Page(hf, redact=lambda text: SECRET.sub("[gone]", text), allow_write=True), True),
        (Page(hf, allow_write=True), False),
    ):
        for address in addresses(hf):
            found = SECRET.findall(unescape(page.ask("GET", address).text))
            if is_redacted:
                assert not found, (address, {secret.places[each] for each in found})
            seen.update(found)
    hidden_places = {place for name, place in secret.places.items() if name in seen}
    assert len(hidden_places) >= 25, "they are there to be hidden"


def test_what_is_lost_does_not_tell_the_keys_that_led_to_it() -> None:
    lost = MissingValue(path="$.SECRET001X", why="a checksum is wrong")
    redacting = Redactor(Redaction(lambda text: SECRET.sub("[gone]", text)))
    state = {"SECRET001X": lost, "list": [lost, (lost,)]}
    with holdfast.open("memory:") as hf:
        saved = hf.thread("t").save({})
    found = redacting.value(msgspec.structs.replace(saved, state=state, lost=(lost,)))
    assert "SECRET" not in repr(found)
    assert repr(found.state).count("a checksum is wrong") == 3


@pytest.mark.parametrize("kind", [Checkpoint, Effect, PendingQuestion])
def test_nothing_new_in_a_record_is_shown_before_somebody_said_whether_it_may_be(kind: type[Any]) -> None:
    names: dict[type[Any], str] = {
        Checkpoint: "id thread seq step parent created_at status usage size digest schema_version skipped",
        Effect: "number branch step name effect status started_at ended_at again_at",
        PendingQuestion: "thread name about since until effect step",
    }
    assert {*names[kind].split(), *_FIELDS[kind]} == set(kind.__struct_fields__)


def test_a_redaction_that_fails_shows_nothing_and_says_so(memory: Holdfast) -> None:
    def broken(text: str) -> str:
        raise RuntimeError(text)

    page = Page(memory, redact=broken)
    answer = page.get("/thread", name="broken")
    assert answer.status_code == 400
    assert scene.SECRET not in answer.text
    assert "redaction function failed" in answer.text
    assert "recorded" not in answer.text, "this page records nothing"
