"""Transcripts, as Markdown and HTML: all that was said is in them, as text, whatever it is."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import holdfast
from holdfast import Holdfast, InvalidArgument, NotFound, Usage
from holdfast.errors import NotInstalled
from holdfast.exporters import Exported, export_html, export_markdown
from holdfast.exporters.transcript import environments
from holdfast.text import block
from tests.cli.looked import HOSTILE, OBEYED
from tests.cli.looked import fill as fill_looked
from tests.exporters import scene
from tests.exporters.scene import THREAD, exported, fill, golden, hidden
from tests.inspect.test_chat import ANTHROPIC, GOOGLE, LANGGRAPH, OPENAI, PLAIN, PYDANTIC_AI, RESPONSES
from tests.selection import tries
from tests.threads.wholes import change_blob, flip

still = scene.still  # fixtures are found by where they stand

Export = Callable[..., Exported]
BOTH = pytest.mark.parametrize("export", [export_markdown, export_html], ids=["markdown", "html"])
EVIL = (
    "</pre></div></style></title><script>document.title='owned'</script><img src=x onerror=alert(1)>",
    "```\n````\n`````text\n# A heading\n<b>bold</b> [a link](javascript:alert(1)) ![i](https://example.com/i.png)\n`````",
    "    indented\n\n- a\n\n> b\n\n| c |\n|---|\n~~~\n<!--\n--> ]]> &amp; &#60;script&#62;",
    HOSTILE,
    "\u2028\u2029\x85\x0b\x0c\ud800\U000e0041\ufeff",
    "`",
    " ` ",
    " ",
    "\n",
)


@pytest.fixture
def memory() -> Iterator[Holdfast]:
    with holdfast.open("memory:") as hf:
        yield hf


class Page(HTMLParser):
    """A page as a browser takes it apart: its elements with their attributes, and the texts of those that show them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.shown: list[str] = []
        self._is_first = False
        self._is_shown: list[bool] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("meta", "br"):
            return
        shows = tag in ("pre", "code", "h1", "li") or dict(attrs).get("class") == "text"
        self._is_shown.append(shows)
        if shows:
            self.shown.append("")
        self._is_first = tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        self._is_shown.pop()

    def handle_data(self, data: str) -> None:
        if self._is_shown and self._is_shown[-1]:
            # A line end behind <pre> is not part of what it shows.
            self.shown[-1] += data.removeprefix("\n") if self._is_first else data
            self._is_first = False


def fences(text: str) -> list[str]:
    """The fences of a Markdown text. Nothing else in it may be markup but what a transcript is made of."""
    found: list[str] = []
    for token in MarkdownIt("commonmark").parse(text):
        assert token.type not in ("html_block", "code_block", "blockquote_open", "hr", "ordered_list_open")
        if token.type == "fence":
            found.append(token.content.removesuffix("\n"))
        for inner in token.children or ():
            assert inner.type in ("text", "code_inline", "strong_open", "strong_close", "em_open", "em_close"), inner
    return found


def state(*texts: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts]}


# -- what is told ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize(
    ("export", "name"), [(export_markdown, "invoice.md"), (export_html, "invoice.html")], ids=["markdown", "html"]
)
def test_a_thread_with_a_call_in_doubt(memory: Holdfast, export: Export, name: str) -> None:
    fill(memory)
    golden(name, exported(export, memory, THREAD))


@BOTH
@pytest.mark.parametrize(
    "messages",
    [OPENAI, ANTHROPIC, PLAIN, PYDANTIC_AI, GOOGLE, RESPONSES, LANGGRAPH["messages"]],
    ids=["openai", "anthropic", "plain", "pydantic", "google", "responses", "langgraph"],
)
def test_every_framework_is_told_in_order(memory: Holdfast, export: Export, messages: list[Any]) -> None:
    memory.thread("t").save({"messages": messages})
    text = exported(export, memory, "t")
    at = text.index("<body>") if export is export_html else 0
    for told in ("How much is ink?", "Let me see.", "Call", "look_up", "ink", "Result", "11", "Eleven."):
        at = text.index(told, at) + len(told)


@BOTH
def test_a_reference(memory: Holdfast, export: Export) -> None:
    fill(memory)
    assert "Now I pay." not in exported(export, memory, f"{THREAD}@0")
    left = exported(export, memory, f"{THREAD}@00000002")
    assert "Never mind." in left
    assert "Open calls" not in left, "that is of the head"
    assert "1 of 2" in left
    assert "Branch 2: checkpoint 3, from checkpoint 1, does not lead here" in left
    assert "second-try" in left
    assert f"{THREAD}@" in exported(export, memory, "second-try"), "what it was forked from"


@BOTH
def test_what_is_known_of_it(memory: Holdfast, export: Export) -> None:
    usage = Usage(input=1200, output=30, cached=200, cost=0.0123)
    memory.thread("t").save(state("Hi"), agent="clerk", label="good", tags=["a", "b"], reason="because", usage=usage)
    text = exported(export, memory, "t")
    assert "1,230 tokens: 1,200 in (200 cached), 30 out; $0.0123" in text
    for told in ("clerk", "good", "because", "step 1, number 1"):
        assert told in text


@BOTH
def test_a_state_without_messages_is_shown_as_it_is(memory: Holdfast, export: Export) -> None:
    memory.thread("t").save({"n": 1, "when": (1, b"\x00")})
    text = exported(export, memory, "t")
    assert "The state contains no messages." in text
    assert "$bytes" in text


@BOTH
def test_pictures_are_named_and_errors_and_thoughts_told(memory: Holdfast, export: Export) -> None:
    data = base64.b64encode(b"x" * 12_000).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    failed = {"type": "tool_result", "tool_use_id": "c1", "is_error": True, "content": "no"}
    asking = [{"type": "thinking", "thinking": "Hm."}, {"type": "tool_use", "id": "c1", "name": "t", "input": {}}]
    messages = [{"role": "user", "content": [image]}, {"role": "assistant", "content": asking}]
    memory.thread("t").save({"messages": [*messages, {"role": "user", "content": [failed]}]})
    text = exported(export, memory, "t")
    for told in ("[image, image/png, 12 kB]", "Result (error)", "Thought", "Hm."):
        assert told in text
    assert data not in text


@BOTH
def test_a_call_that_a_running_process_makes_is_under_way(memory: Holdfast, export: Export) -> None:
    seen: list[str] = []

    @holdfast.tool(effect="irreversible")
    def send() -> None:
        seen.append(exported(export, memory, "t"))

    with memory.run("t", start=state("Hi"), tools=[send]) as run:
        for _ in run.steps():
            run.tool("send", {})
            break
    assert "in doubt" not in seen[0]
    assert "irreversible, under way" in seen[0]


@BOTH
def test_damage_is_marked(tmp_path: Path, export: Export) -> None:
    with holdfast.open(tmp_path / "store.db", durability="off") as hf:
        hf.thread("t").save(state(*(f"message {n} " * 50 for n in range(40))))
    change_blob(tmp_path / "store.db", "checkpoint", "cells", "1", flip)
    with holdfast.open(tmp_path / "store.db", durability="off") as hf:
        out = io.BytesIO()
        done = export(hf, out, "t")
    assert not done.ok
    text = out.getvalue().decode()
    assert "Unreadable parts" in text
    assert "cannot be read: " in text


@BOTH
def test_redacted_texts_are_not_in_it(memory: Holdfast, export: Export) -> None:
    fill(memory)
    text = exported(export, memory, THREAD, redact=hidden)
    assert "DE02" not in text
    assert "Pay this" not in text
    assert text.count("[iban]") == 2


@BOTH
def test_mistakes(memory: Holdfast, export: Export, tmp_path: Path) -> None:
    memory.thread("notes").save(state("Hi"))
    for reference in ("nots", "notes@9"):
        with pytest.raises(NotFound):
            export(memory, tmp_path / "out", reference)
        assert not (tmp_path / "out").exists()
    assert export(memory, tmp_path / "out", "notes").bytes == (tmp_path / "out").stat().st_size
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidArgument, match="already exists; nothing was written"):
        export(memory, tmp_path / "out", "notes")


@BOTH
def test_without_jinja_nothing_is_written(
    memory: Holdfast, export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.thread("t").save(state("Hi"))
    environments.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(NotInstalled, match="pip install jinja2"):
        export(memory, tmp_path / "out", "t")
    assert not (tmp_path / "out").exists()


# -- content is never interpreted --------------------------------------------------------------------------------------


def test_markdown_shows_hostile_texts_as_they_are(memory: Holdfast) -> None:
    memory.thread("t").save(state(*EVIL))
    assert fences(exported(export_markdown, memory, "t")) == [block(text) for text in EVIL]


def test_html_shows_hostile_texts_as_they_are(memory: Holdfast) -> None:
    memory.thread("t").save(state(*EVIL))
    page = Page(exported(export_html, memory, "t"))
    assert [text for text in page.shown if text in {block(each) for each in EVIL}] == [block(text) for text in EVIL]


@BOTH
def test_names_and_words_of_all_kinds_stay_texts(memory: Holdfast, export: Export) -> None:
    fill_looked(memory)
    for number, evil in enumerate(EVIL):
        asking = {"role": "assistant", "name": evil, "tool_calls": [{"id": evil, "name": evil, "args": {evil: evil}}]}
        messages = [{"role": evil, "content": [{"type": "odd", evil: [evil]}]}, asking]
        word = evil.replace("\ud800", "")
        label = f"{word.replace(chr(0), '')}{number}"
        memory.thread(f"evil {evil}").save(
            {"messages": messages}, label=label, tags=[f"x{word}"], agent=word, reason=word
        )
    for info in memory.threads():
        text = exported(export, memory, info.name)
        assert not OBEYED.search(text), "what a terminal or a browser would obey is spelled out"
        if export is export_markdown:
            fences(text)
        else:
            elements = Page(text).elements
            assert {name for name, _ in elements} <= ALLOWED
            assert {key for _, attributes in elements for key in attributes} <= ATTRIBUTES


PARTS = ("html", "head", "meta", "title", "style", "body", "main", "section", "article", "details", "summary", "dl")
WORDS = ("div", "dt", "dd", "h1", "h2", "h3", "h4", "p", "pre", "ul", "li", "code", "span", "strong", "time")
ALLOWED = {*PARTS, *WORDS}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "id", "aria-labelledby", "dir", "datetime"}

_TEXTS = st.text(st.sampled_from("`~\n <>&#-*a\r\u202e\x1b[]"), min_size=1)


@settings(deadline=None, max_examples=tries(60, 25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(_TEXTS, min_size=1, max_size=4))
def test_any_text_comes_back_as_it_was(texts: list[str]) -> None:
    with holdfast.open("memory:") as hf:
        hf.thread("t").save(state(*texts), reason=texts[0], agent=texts[-1])
        expected = [block(text.replace("\r\n", "\n")) for text in texts]
        assert fences(exported(export_markdown, hf, "t")) == expected
        page = Page(exported(export_html, hf, "t"))
        assert set(expected) <= set(page.shown)
        assert {name for name, _ in page.elements} <= ALLOWED


def test_huge_texts_are_folded_and_whole(memory: Holdfast) -> None:
    long, result = "word " * 100_000, "\n".join(f"line {n}" for n in range(500))
    called = {"role": "assistant", "content": "", "calls": [{"id": "1", "name": "t", "args": {}}]}
    answered = {"role": "tool", "id": "1", "content": result}
    memory.thread("t").save({"messages": [{"role": "user", "content": long}, called, answered]})
    text = exported(export_html, memory, "t")
    assert "<summary>500,000 characters</summary>" in text
    assert f"<summary>{len(result):,} characters, 500 lines</summary>" in text
    assert {long, result} <= set(Page(text).shown)
    assert fences(exported(export_markdown, memory, "t")) == [long, "{}", result]


def test_a_page_loads_and_runs_nothing(memory: Holdfast) -> None:
    fill(memory)
    text = exported(export_html, memory, THREAD)
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert policy is not None
    assert style is not None
    assert policy.start() < style.start(), "it holds for what comes behind it"
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy[1] == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    page = Page(text)
    assert {name for name, _ in page.elements} <= ALLOWED
    assert {key for _, attributes in page.elements for key in attributes} <= ATTRIBUTES


def test_a_page_is_accessible(memory: Holdfast) -> None:
    fill(memory)
    page = Page(exported(export_html, memory, THREAD))
    names = [name for name, _ in page.elements]
    assert names.count("h1") == names.count("main") == names.count("title") == 1
    assert dict(page.elements)["html"] == {"lang": "en"}
    levels = [int(name[1]) for name in names if re.fullmatch("h[1-4]", name)]
    assert all(below - above <= 1 for above, below in pairwise(levels)), "no level is left out"
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = [attributes["aria-labelledby"] for _, attributes in page.elements if "aria-labelledby" in attributes]
    assert set(named) == set(ids)
    assert any(attributes.get("name") == "viewport" for _, attributes in page.elements)
