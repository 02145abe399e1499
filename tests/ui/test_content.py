"""What agents stored is shown as text, whatever it is: hostile, huge, odd. Nothing that is asked breaks the server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Holdfast
from tests.selection import tries
from tests.ui import scene
from tests.ui.conftest import Page
from tests.ui.test_pages import OK, step, text_of


@pytest.mark.parametrize("query", [{}, {"text": "plain"}, {"internal": "1"}, {"edit": "1"}])
def test_hostile_content_is_shown_as_text(page: Page, query: dict[str, str]) -> None:
    found = step(page, scene.HOSTILE_THREAD, **query)
    assert "<script>document" not in found
    assert "<img" not in found
    assert not set("\u202e\u2066") & set(text_of(found))
    assert "&lt;script&gt;document.title=&#39;owned&#39;&lt;/script&gt;" in found


def test_hostile_names_and_reasons_are_shown_as_text(page: Page) -> None:
    for path in ("/", "/threads", "/search?q=script", "/workers", "/store"):
        found = page.ask("GET", path).text
        assert "<script>document" not in found
        assert "\u202e" not in text_of(found)
    found = page.get("/thread", name=scene.HOSTILE_THREAD).text
    assert "<img" not in found
    assert "&lt;script&gt;" in found


def test_a_huge_text_is_cut_and_whole_in_the_file(page: Page) -> None:
    found = step(page, scene.HOSTILE_THREAD)
    assert "more characters, see the raw state" in found
    assert len(found) < 150_000
    id = page.hf.thread(scene.HOSTILE_THREAD).load("@-1").id
    assert page.get("/state", name=scene.HOSTILE_THREAD, at=id).text.count("A") >= 50_000


def test_what_is_redacted_never_reaches_the_browser(memory: Holdfast) -> None:
    page = Page(memory, redact=lambda text: text.replace(scene.SECRET, "[secret]"), allow_write=True)
    pages = [
        page.get("/"),
        page.get("/threads"),
        page.get("/search", q="sk-"),
        page.get("/thread", name="broken"),
        page.get("/thread", name=scene.LETTERS),
    ]
    texts = [each.text for each in pages]
    for thread in (scene.LETTERS, "broken"):
        texts += [step(page, thread), page.get("/state", name=thread).text]
        texts += [page.get("/export", name=thread, format=kind).text for kind in ("markdown", "html")]
    assert not any(scene.SECRET in text for text in texts)
    assert any("[secret]" in text for text in texts)
    assert any(scene.SECRET in each.text for each in [Page(memory).get("/thread", name="broken")]), (
        "it is there to be hidden"
    )


def test_labels_reasons_and_progress_are_redacted_too() -> None:
    with holdfast.open("memory:") as hf:
        hf.thread("t").save(
            {}, label=scene.SECRET, tags=(scene.SECRET,), agent=scene.SECRET, metadata={"k": scene.SECRET}
        )
        try:
            with hf.run("r", start={}) as run:
                run.progress(1, note=f"at {scene.SECRET}")
                raise ValueError(scene.SECRET)
        except ValueError:
            pass
        page = Page(hf, redact=lambda text: text.replace(scene.SECRET, "[secret]"), allow_write=True)
        texts = [page.get("/").text, page.get("/threads").text, step(page, "t"), step(page, "r")]
        assert not any(scene.SECRET in text for text in texts)
        assert all("[secret]" in text for text in texts)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=40) | st.datetimes(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4) | st.tuples(inner)
    ),
    max_leaves=12,
)


@settings(max_examples=tries(60, 12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.text(min_size=1, max_size=20), state=values, messages=st.lists(values, max_size=3))
def test_any_state_under_any_name_is_shown(name: str, state: Any, messages: list[Any]) -> None:
    with holdfast.open("memory:") as hf:
        try:
            hf.thread(name).save({"state": state, "messages": messages}, label=name)
        except holdfast.HoldfastError:
            return  # what cannot be stored cannot be shown
        page = Page(hf, allow_write=True)
        for path in ("/", "/threads", "/search?q=a"):
            assert page.ask("GET", path).status_code == OK
        assert step(page, name)
        assert page.get("/state", name=name).status_code == OK


def test_an_int_of_more_digits_than_python_writes_is_shown() -> None:
    with holdfast.open("memory:") as hf:
        many = 10**5000
        hf.thread("t").save({"many": many, "in": {"a": [many]}, "messages": [{"role": "user", "content": many}]})
        assert step(Page(hf, allow_write=True), "t", edit="1")


asked = st.dictionaries(
    st.sampled_from(
        ["name", "at", "text", "internal", "part", "before", "from", "against", "q", "status", "order", "after", "with"]
    ),
    st.text(max_size=12)
    | st.sampled_from(["writer/book", "@-1", "@1", "rows", "more", "steps", "chosen", "edit", "-1", "9" * 30]),
    max_size=5,
)


@settings(
    max_examples=tries(200, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(path=st.sampled_from(["/", "/threads", "/thread", "/state", "/search", "/workers", "/store"]), query=asked)
def test_nothing_that_is_asked_breaks_the_server(page: Page, path: str, query: dict[str, str]) -> None:
    answer = page.get(path, **query)
    assert answer.status_code in (200, 303, 400, 404, 409), answer.text
