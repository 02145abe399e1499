"""Hostile texts in every place where a program can put one: no page has live markup from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import quote

import pytest

import holdfast
from holdfast import Holdfast, Run, Usage
from holdfast.ui.templates import environment
from tests.ui.conftest import Page

EVIL = (
    "\"'`><script>alert(1)</script><img src=x onerror=alert(1)><a href='javascript:alert(1)'>x</a>&lt;b&gt;{{7919*97}}"
)
FENCED = (
    f"# {EVIL}\n\n[x](javascript:alert(1)) ![i](http://evil/x.png) <http://evil/>\n\n```{EVIL}\n{EVIL}\n```\n\n> {EVIL}"
)
TAGS = {
    *("html", "head", "meta", "title", "link", "script", "body", "header", "nav", "main", "noscript"),
    *("h1", "h2", "h3", "h4", "p", "a", "b", "i", "em", "strong", "span", "div", "section", "article", "br", "hr"),
    *("ul", "ol", "li", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "blockquote"),
    *("form", "input", "button", "textarea", "label", "select", "option", "datalist", "details", "summary"),
    *("pre", "code", "kbd", "time", "mark", "progress", "figure", "figcaption"),
    *("svg", "path", "circle", "rect", "polyline", "polygon"),
}
TOOL = EVIL.replace("/", "").replace("#", "")  # which the name of a tool may not have
NAME = f"t/{EVIL}"


@holdfast.tool(effect="irreversible", in_doubt="ask", name=TOOL)
def post(letter: str) -> str:
    raise ConnectionError(EVIL)


@holdfast.tool(effect="read", name=f"look {TOOL}")
def look(item: str) -> dict[str, str]:
    return {EVIL: EVIL}


@pytest.fixture
def hostile() -> Iterator[Holdfast]:
    with holdfast.open("memory:") as hf:
        fill(hf)
        yield hf


def fill(hf: Holdfast) -> None:
    """A store in which every text that a program can choose is hostile."""
    thread = hf.thread(NAME)
    calls = [{"id": EVIL, "name": EVIL, "args": {EVIL: EVIL}}]
    for number in range(2):
        messages = [
            {"role": "user", "content": FENCED, "name": EVIL},
            {"role": EVIL, "content": [{"type": "text", "text": FENCED}, {"type": EVIL, EVIL: EVIL}]},
            {"role": "assistant", "content": EVIL, "calls": calls, "reasoning": EVIL},
            {"role": "tool", "id": EVIL, "content": FENCED},
        ]
        thread.save(
            {"messages": messages[: 2 + 2 * number], EVIL: [EVIL, {EVIL: EVIL}], f"${EVIL}": EVIL, "n": number},
            label=EVIL,
            tags=(EVIL,),
            metadata={EVIL: EVIL},
            agent=EVIL,
            reason=EVIL,
            resume_hint=EVIL,
            trigger=EVIL,
            usage=Usage(input=5, cost=1.0),
        )
        hf.thread(f"p/{EVIL}").save({})
    thread.fork(f"fork/{EVIL}", at="@-1")
    for _ in range(2):
        with hf.run(f"run/{EVIL}", start={"messages": []}, tools=[post, look], agent=EVIL, version=EVIL) as run:
            working(run)
    with hf.run(f"ask/{EVIL}", start={}) as run:
        for _ in run.steps():
            run.wait(EVIL, {EVIL: EVIL})
    try:
        with hf.run(f"failed/{EVIL}", start={}):
            raise ValueError(EVIL)
    except ValueError:
        pass
    hf.submit(EVIL, f"job/{EVIL}", start={}, version=EVIL)


def working(run: Run) -> None:
    for step in run.steps():
        run.progress(1, 2, EVIL)
        run.model(lambda: {"model": EVIL, "content": FENCED, "usage": {"input_tokens": 3, "output_tokens": 4}})
        run.tool(look, {"item": EVIL}, key=f"{EVIL}{step}")
        if step == 2:
            run.tool(post, {"letter": EVIL}, key=EVIL)


class Markup(HTMLParser):
    """The elements of a page, and what is wrong with them."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        if tag not in TAGS:
            self.wrong.append(f"<{tag}>")
        for name, value in attrs:
            if name.startswith("on") or name in ("style", "srcdoc", "formaction"):
                self.wrong.append(f"<{tag} {name}>")
            if name in ("href", "src", "action") and not (value or "").startswith(("/", "#")):
                self.wrong.append(f"{name}={value}")


def addresses(hf: Holdfast) -> Iterator[str]:
    yield from ("/", "/threads", "/workers", "/store", "/store?with=figures", f"/search?q={quote(EVIL[:20])}")
    yield f"/threads?q={quote(EVIL)}&agent={quote(EVIL)}&tag={quote(EVIL)}"
    yield from (f"/thread?name={quote(EVIL)}", f"/{quote(EVIL)}", f"/threads?status={quote(EVIL)}")  # errors
    for info in hf.threads():
        name = f"/thread?name={quote(info.name, safe='')}"
        yield from (name, f"{name}&with=plots&internal=1&text=plain&edit=1&at=@-1", f"{name}&against={quote(EVIL)}")
        yield from (f"{name}&part={part}" for part in ("steps", "more", "head", "recovery", "plots", "chosen"))


@pytest.mark.parametrize("allow_write", [False, True])
def test_no_page_has_live_markup_of_a_program(hostile: Holdfast, allow_write: bool) -> None:
    page = Page(hostile, allow_write=allow_write, title=EVIL)
    seen = 0
    for address in addresses(hostile):
        answer = page.ask("GET", address)
        if answer.status_code == 303:
            answer = page.ask("GET", answer.headers["location"])
        markup = Markup()
        markup.feed(answer.text)
        assert markup.wrong == [], address
        assert markup.scripts == ("part=" not in address), address
        assert "768143" not in re.sub(r"[-.:\d]{9,}", "", answer.text), "a text is not a template"
        seen += "&lt;script&gt;" in answer.text
    assert seen > 30


def test_no_plan_has_live_markup_of_a_form(hostile: Holdfast) -> None:
    page = Page(hostile, allow_write=True)
    forms = {
        "fork": {"thread": NAME, "id": "@1", "name": EVIL},
        "rewind": {"thread": NAME, "id": "@1"},
        "label": {"thread": NAME, "id": "@1", "label": f"x{EVIL}"},
        "prune": {"thread": f"p/{EVIL}", "keep_last": "1"},
        "answer": {"thread": f"ask/{EVIL}", "name": EVIL, "text": EVIL},
        "settle": {"thread": f"run/{EVIL}", "effect": "5", "outcome": "happened", "value": '"<script>"'},
        "cancel": {"thread": f"ask/{EVIL}", "reason": EVIL},
    }
    for action, form in forms.items():
        asked = page.post(action, confirmed=False, **form)
        assert asked.status_code == 200, (action, asked.text[-400:])
        markup = Markup()
        markup.feed(asked.text)
        assert markup.wrong == [], action
        assert page.confirm(action, asked).status_code == 303, action


def test_no_template_marks_text_as_safe() -> None:
    """Only `render` and the renderer of Markdown make markup."""
    made = environment()
    for name in made.list_templates():
        source, _, _ = made.loader.get_source(made, name) if made.loader else ("", None, None)
        for word in ("|safe", "autoescape", "Markup", "|tojson", "xmlattr"):
            assert word not in source, name
