"""What the pages show, on every store: threads, timelines, steps, the store. Content is text, never markup."""

from __future__ import annotations

import re
import time
from html import unescape
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Holdfast
from tests.ui import scene
from tests.ui.conftest import Page

VIEWS = ("messages", "state", "diff", "effects", "raw", "about")
OK = 200


def text_of(markup: str) -> str:
    return unescape(re.sub(r"<[^>]*>", " ", markup))


def step(page: Page, thread: str, ref: str = "@-1", **query: Any) -> str:
    found = page.get("/step", thread=thread, id=ref, **query)
    if found.status_code == 303:
        found = page.ask(
            "GET", found.headers["location"] + "".join(f"&{k}={v}" for k, v in query.items() if k != "view")
        )
    assert found.status_code == OK, found.text
    return found.text


def test_threads_are_listed_with_what_they_are(filled: Holdfast) -> None:
    text = text_of(Page(filled).get("/").text)
    assert "writer/book" in text
    for standing in ("in doubt", "waiting", "failed", "completed"):
        assert standing in text
    assert "asks approve?" in text
    assert "1 call in doubt" in text
    assert "$0.14" in text


def test_threads_are_searched_filtered_and_sorted(page: Page) -> None:
    def names(**query: str) -> list[str]:
        return re.findall(r'class="name" data-key="([^"]*)"', page.get("/", **query).text)

    assert names(q="BOOK") == ["writer/book", "writer/book-b"]
    assert names(status="waiting") == ["approvals/42"]
    assert names(status="in doubt") == ["letters/in-doubt"]
    assert names(order="longest", q="writer") == ["writer/book", "writer/book-b"]
    assert names(q="nothing like it") == []
    assert page.get("/", status="odd").status_code == 400
    assert page.get("/", order="odd").status_code == 400


def test_a_list_is_given_page_by_page() -> None:
    with holdfast.open("memory:") as hf:
        for number in range(120):
            hf.thread(f"t{number:03}").save({})
        page = Page(hf)
        first = page.get("/").text
        assert first.count("data-key=") == 50
        more = re.search(r'href="([^"]*after=[^"]*)"', first)
        assert more is not None
        second = page.ask("GET", unescape(more[1])).text
        assert 'data-key="t050"' in second
        assert "First page" in second


def test_the_timeline_shows_branches_calls_labels_and_forks(filled: Holdfast) -> None:
    found = Page(filled).get("/thread", name=scene.BOOK).text
    assert found.count("data-key=") == 12
    assert "abandoned" in found
    assert "good" in found
    assert "↳ writer/book-b" in found
    assert "headmark" in found
    calls = Page(filled).get("/thread", name="payments").text
    assert "pay, " in calls
    assert 'class="model"' in calls
    assert 'class="tool"' in calls


def test_a_long_timeline_is_given_page_by_page() -> None:
    with holdfast.open("memory:") as hf:
        thread = hf.thread("long")
        for number in range(230):
            thread.save({"n": number})
        page = Page(hf)
        first = page.get("/thread", name="long").text
        assert first.count("data-key=") == 100
        rest = page.get("/thread", name="long", before=131, part="more").text
        assert rest.count("data-key=") == 100
        assert "data-more" in rest
        last = page.get("/thread", name="long", before=31, part="more").text
        assert last.count("data-key=") == 30
        assert "data-more" not in last


def test_plots_are_drawn_of_what_is_known(page: Page) -> None:
    found = page.get("/thread", name=scene.BOOK, part="plots").text
    assert found.count("<figure") == 3
    assert page.get("/thread", name=scene.LETTERS, part="plots").text.count("<figure") == 1


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_a_step_on_every_store(filled: Holdfast, view: str) -> None:
    text = text_of(step(Page(filled), scene.LETTERS, view=view))
    expected = {
        "messages": "Called since this checkpoint",
        "state": "messages",
        "diff": "changes since",
        "effects": "irreversible",
        "raw": '"role": "user"',
        "about": "Digest",
    }
    assert expected[view] in text


def test_the_address_of_a_step_names_it_for_good(page: Page) -> None:
    answer = page.get("/step", thread=scene.BOOK, id="@-1")
    assert answer.status_code == 303
    head = page.hf.thread(scene.BOOK).head()
    assert head is not None
    assert f"id={head.id}" in answer.headers["location"]


def test_calls_stand_beside_their_results_and_doubt_in_amber(page: Page) -> None:
    found = step(page, scene.LETTERS)
    assert re.search(r'class="call">.*look_up.*paper.*result.*price', found, re.DOTALL)
    assert 'class="effect doubt"' in found
    call = re.search(r'class="call doubt">.*?post', found, re.DOTALL)
    assert call is not None


def test_steps_are_compared_with_the_one_before_or_any(page: Page) -> None:
    assert "$.chapter" in text_of(step(page, scene.BOOK, view="diff"))
    far = text_of(step(page, scene.BOOK, view="diff", against="@1"))
    assert "since  writer/book step 1" in far
    assert (
        page.get(
            "/step", thread=scene.BOOK, id=page.hf.thread(scene.BOOK).load("@-1").id, view="diff", against="@nothing"
        ).status_code
        == 404
    )
    fork = text_of(step(page, "writer/book-b", view="diff"))
    assert "0 changes since" in fork


def test_what_a_resume_would_do_is_told_with_the_command_and_the_code(page: Page) -> None:
    text = text_of(page.get("/thread", name=scene.LETTERS).text)
    assert "What a resume would do now" in text
    assert "needs an answer" in text
    assert "holdfast settle letters/in-doubt" in text
    assert "with hf.run('letters/in-doubt') as run:" in text


def test_what_waits_is_listed(page: Page) -> None:
    text = text_of(page.get("/waiting").text)
    assert "approve?" in text
    assert '{"amount":420}' in text
    assert "post" in text


def test_the_store_tells_its_size_and_verifies_itself(page: Page) -> None:
    assert page.get("/store").status_code == OK
    assert "Checkpoints" in page.get("/store", part="stats").text
    assert page.post("verify").status_code == 303
    deadline = time.monotonic() + 30
    while "nothing is wrong" not in page.get("/store", part="verify").text:
        assert time.monotonic() < deadline


def test_a_part_that_did_not_change_is_not_sent_again(page: Page) -> None:
    first = page.get("/thread", name=scene.BOOK, part="steps")
    mark = first.headers["etag"]
    again = page.ask("GET", "/thread?name=writer%2Fbook&part=steps", headers={"If-None-Match": mark})
    assert again.status_code == 304
    assert again.content == b""
    writer = page.hf.thread(scene.BOOK)
    writer.latest()
    writer.save({"new": 1})
    assert page.ask("GET", "/thread?name=writer%2Fbook&part=steps", headers={"If-None-Match": mark}).status_code == OK


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/thread?name=nothing", 404),
        ("/thread", 400),
        ("/step?thread=nothing", 404),
        ("/step?thread=writer/book&id=@99", 404),
        ("/nowhere", 404),
        ("/static/secret", 404),
        ("/static/../application.py", 404),
        ("/act/fork", 405),
    ],
)
def test_what_is_not_there_is_said_so(page: Page, path: str, status: int) -> None:
    answer = page.ask("GET", path)
    assert answer.status_code == status
    assert "Traceback" not in answer.text


def test_a_mistyped_name_is_told_what_may_be_meant(page: Page) -> None:
    assert "did you mean" in page.get("/thread", name="writer/bok").text


# -- content -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
def test_hostile_content_is_shown_as_text(page: Page, view: str) -> None:
    found = step(page, scene.HOSTILE_THREAD, view=view)
    assert "<script>document" not in found
    assert "<img" not in found
    assert not set("\u202e\u2066") & set(text_of(found))
    assert "&lt;script&gt;document.title=&#x27;owned&#x27;&lt;/script&gt;" in found


def test_hostile_names_and_reasons_are_shown_as_text(page: Page) -> None:
    for path in ("/", "/waiting", "/store"):
        found = page.get(path).text
        assert "<script>document" not in found
        assert "\u202e" not in text_of(found)
    found = page.get("/thread", name=scene.HOSTILE_THREAD).text
    assert "<img" not in found
    assert "&lt;script&gt;" in found


def test_a_huge_text_is_cut_and_whole_in_the_file(page: Page) -> None:
    found = step(page, scene.HOSTILE_THREAD)
    assert "more characters, see Raw" in found
    assert len(found) < 100_000
    id = page.hf.thread(scene.HOSTILE_THREAD).load("@-1").id
    whole = page.get("/step", thread=scene.HOSTILE_THREAD, id=id, download="1")
    assert whole.text.count("A") >= 50_000
    assert whole.headers["content-disposition"] == 'attachment; filename="state-1.json"'
    assert whole.headers["content-type"] == "application/octet-stream"


def test_what_is_redacted_never_reaches_the_browser(memory: Holdfast) -> None:
    page = Page(memory, redact=lambda text: text.replace(scene.SECRET, "[secret]"), allow_write=True)
    pages = [
        page.get("/"),
        page.get("/waiting"),
        page.get("/thread", name="broken"),
        page.get("/thread", name=scene.LETTERS),
    ]
    texts = [each.text for each in pages]
    for thread in (scene.LETTERS, "broken"):
        texts += [step(page, thread, view=view) for view in VIEWS]
        texts.append(page.get("/step", thread=thread, id=memory.thread(thread).load("@-1").id, download="1").text)
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
        texts = [page.get("/").text, page.get("/thread", name="t").text, page.get("/thread", name="r").text]
        texts += [step(page, "t", view=view) for view in VIEWS]
        assert not any(scene.SECRET in text for text in texts)
        assert all("[secret]" in text for text in texts)


def test_a_redaction_that_fails_shows_nothing(memory: Holdfast) -> None:
    def broken(text: str) -> str:
        raise RuntimeError

    page = Page(memory, redact=broken)
    answer = page.get("/step", thread="broken", id=memory.thread("broken").load("@-1").id)
    assert answer.status_code == 400
    assert scene.SECRET not in answer.text


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=40) | st.datetimes(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4) | st.tuples(inner)
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.text(min_size=1, max_size=20), state=values, messages=st.lists(values, max_size=3))
def test_any_state_under_any_name_is_shown(name: str, state: Any, messages: list[Any]) -> None:
    with holdfast.open("memory:") as hf:
        try:
            hf.thread(name).save({"state": state, "messages": messages}, label=name)
        except holdfast.HoldfastError:
            return  # what cannot be stored cannot be shown
        page = Page(hf, allow_write=True)
        assert page.get("/").status_code == OK
        assert page.get("/thread", name=name).status_code == OK
        for view in VIEWS:
            assert step(page, name, view=view)


asked = st.dictionaries(
    st.sampled_from(
        ["name", "thread", "id", "view", "part", "before", "from", "against", "q", "status", "order", "after"]
    ),
    st.text(max_size=12)
    | st.sampled_from(["writer/book", "@-1", "@1", "diff", "rows", "more", "steps", "-1", "9" * 30]),
    max_size=5,
)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(path=st.sampled_from(["/", "/thread", "/step", "/waiting", "/store"]), query=asked)
def test_nothing_that_is_asked_breaks_the_server(page: Page, path: str, query: dict[str, str]) -> None:
    answer = page.get(path, **query)
    assert answer.status_code in (200, 303, 400, 404, 409), answer.text
