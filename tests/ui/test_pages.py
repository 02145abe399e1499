"""What the pages show, on every store: threads, timelines, steps, the store. Content is text, never markup."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Usage
from holdfast.looking.stats import Stats, stats
from holdfast.ui import keeping
from tests.ui import scene
from tests.ui.conftest import Page
from tests.waiting import until

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
    assert "resumed" not in found
    calls = Page(filled).get("/thread", name="payments").text
    assert 'aria-label="Calls: ' in calls, "bars are told in words, too, and lead to more of them"
    assert 'view=effects" class="calls"' in calls
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


def test_money_is_told_in_its_own_currency_and_tokens_beside_it() -> None:
    with holdfast.open("memory:") as hf:
        thread = hf.thread("euro")
        for number in range(1, 4):
            thread.save({"n": number}, usage=Usage(input=100 * number, output=10, cost=0.5 * number, currency="EUR"))
        page = Page(hf)
        rows = text_of(page.get("/thread", name="euro", part="steps").text)
        assert re.findall(r"Σ (\S+) tok\s+Σ (\S+ EUR)", rows) == [
            ("310", "1.50 EUR"),
            ("210", "1.00 EUR"),
            ("110", "0.50 EUR"),
        ]
        plots = text_of(page.get("/thread", name="euro", part="plots").text)
        assert "1.50 EUR" in plots
        assert "$" not in rows + plots


def test_where_no_checkpoint_tells_it_a_row_has_what_its_calls_used(page: Page) -> None:
    rows = text_of(page.get("/thread", name="payments", part="steps").text)
    assert rows.count("13 tok") == 3
    assert "Σ" not in rows


def test_a_plot_is_of_what_led_to_the_head(page: Page) -> None:
    found = page.get("/thread", name=scene.BOOK, part="plots").text
    sizes = found.partition('class="curve"')[0]
    points = re.findall(r"[\d.]+,([\d.]+)", sizes.partition('points="')[2].partition('"')[0])[1:-1]
    heights = [float(each) for each in points]
    assert heights == sorted(heights, reverse=True), "a branch that was left would be a tooth in it"


def test_what_nobody_runs_does_not_look_as_if_it_ran(page: Page) -> None:
    row = page.get("/", q=scene.BOOK).text
    assert 'class="chip running"' not in row
    assert ">saved<" in row
    assert 'class="chip running"' not in page.get("/thread", name=scene.BOOK).text
    old = page.hf.thread("payments").load("@1")
    assert old.status == "running"
    assert "chip running" not in page.get("/step", thread="payments", id=old.id).text
    assert "chip completed" in step(page, "payments")


def test_a_call_that_is_under_way_is_not_in_doubt() -> None:
    seen: list[str] = []

    @holdfast.tool(effect="irreversible")
    def pay(amount: int) -> int:
        page = Page(hf)
        seen.extend([page.get("/thread", name="live").text, step(page, "live", view="effects")])
        return amount

    with holdfast.open("memory:") as hf, hf.run("live", start={"messages": []}, tools=[pay]) as run:
        for _ in run.steps():
            run.tool("pay", {"amount": 1}, key="a")
            run.finish(1)
            break
    timeline, effects = seen
    assert 'class="tool"' in timeline
    assert "rect" in timeline
    assert 'class="doubt"' not in timeline
    assert "under way" in effects
    assert "effect doubt" not in effects


def test_plots_are_drawn_of_what_is_known(page: Page) -> None:
    found = page.get("/thread", name=scene.BOOK, part="plots").text
    assert found.count("<figure") == 3
    assert page.get("/thread", name=scene.LETTERS, part="plots").text.count("<figure") == 1


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_a_step_on_every_store(filled: Holdfast, view: str) -> None:
    text = text_of(step(Page(filled), scene.LETTERS, view=view))
    expected = {
        "messages": "Calls after this checkpoint",
        "state": "messages",
        "diff": "changes since",
        "effects": "irreversible",
        "raw": '"role": "user"',
        "about": "Digest",
    }
    assert expected[view] in text


@pytest.mark.parametrize("view", ["messages", "diff"])
def test_a_step_is_named_as_on_the_command_line(page: Page, view: str) -> None:
    thread = page.hf.thread(scene.BOOK)
    head, third = thread.load("@-1"), thread.load("@3")
    moment = f"{third.created_at:%Y-%m-%dT%H:%M:%S.%f}"
    refs = ["@3", third.id, f"@{third.id}", third.id[-8:], f"@{third.id[-8:]}", f"@{moment}", moment]
    for ref in refs:
        found = page.get("/step", thread=scene.BOOK, id=ref)
        assert third.id in (found.headers.get("location", "") if ref != third.id else third.id), ref
        compared = page.get("/step", thread=scene.BOOK, id=head.id, view="diff", against=ref).text
        assert "writer/book step 3" in text_of(compared), ref
    assert "did you mean" in page.get("/step", thread=scene.BOOK, id="@goood", view=view).text


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
    assert "needs a decision" in text
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
    until(lambda: "no problems" in page.get("/store", part="verify").text)


def test_a_count_of_the_store_is_shared_by_who_asks_at_once(memory: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def counting(hf: Holdfast) -> Stats:
        counted.append(1)
        clock[0] += 5.0  # so long it takes
        return stats(hf)

    clock = [100.0]
    monkeypatch.setattr(keeping, "stats", counting)
    figures = keeping.Counting(memory, lambda: clock[0])
    first = figures.stats()
    assert figures.stats() is first
    clock[0] += 99.0
    assert figures.stats() is first
    clock[0] += 2.0
    assert figures.stats() is not first
    assert len(counted) == 2


@pytest.mark.parametrize(
    ("path", "link", "shown"),
    [("/store", "with=stats", "Checkpoints"), (f"/thread?name={scene.BOOK}", "with=plots", "Size of the state")],
)
def test_without_scripts_a_link_leads_to_what_takes_its_time(page: Page, path: str, link: str, shown: str) -> None:
    first = page.ask("GET", path).text
    assert shown not in first
    found = re.search(rf'<noscript><a href="([^"]*{link}[^"]*)"', first)
    assert found is not None
    assert shown in page.ask("GET", unescape(found[1])).text


def test_a_part_that_did_not_change_is_not_sent_again(page: Page) -> None:
    whole = page.get("/thread", name=scene.BOOK).text
    first = page.get("/thread", name=scene.BOOK, part="steps")
    mark = first.headers["etag"]
    assert f"data-mark={mark}" in whole, "so what the page came with is not sent again either"
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


def test_the_page_of_a_completed_run_shows_its_result(memory: Holdfast) -> None:
    with memory.run("done", start={}) as run:
        run.finish({"paid": 7})
    assert "Result: {&quot;paid&quot;:7}" in Page(memory).get("/thread", name="done").text.replace("<code>", "")


def test_a_run_that_was_left_unfinished_is_told_apart_from_one_between_turns(memory: Holdfast) -> None:
    with pytest.raises(KeyboardInterrupt), memory.run("left in the middle", start={}):
        raise KeyboardInterrupt
    with memory.run("between turns", start={}):
        pass
    page = Page(memory)
    for status, name, other in (
        ("released", "left in the middle", "between turns"),
        ("idle", "between turns", "left in the middle"),
    ):
        text = page.get("/", status=status).text
        assert name in text, status
        assert other not in text, status
    text = page.get("/thread", name="left in the middle").text
    assert "released" in text
