"""What the pages show, on every store: inbox, threads, a thread in two panes, search, workers, the store."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Usage
from holdfast.ui.content import as_json, coloured
from holdfast.ui.figures import Figures
from tests.ui import scene
from tests.ui.conftest import Page
from tests.waiting import until

OK = 200


def text_of(markup: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", markup)))


def step(page: Page, thread: str, ref: str = "@-1", **query: Any) -> str:
    """The page of a thread with a chosen step."""
    found = page.get("/thread", name=thread, at=ref, **query)
    if found.status_code == 303:
        found = page.ask("GET", found.headers["location"])
    assert found.status_code == OK, found.text
    return found.text


def section(markup: str, name: str) -> str:
    """A section of the chosen step."""
    found = re.search(rf'<section id="{name}".*?</section>', markup, re.DOTALL)
    assert found is not None, name
    return found[0]


# -- inbox ------------------------------------------------------------------------------------------------------------


def test_the_inbox_has_what_needs_a_person(filled: Holdfast) -> None:
    found = Page(filled).get("/").text
    items = {item.partition('"')[0]: text_of(item) for item in found.split('data-key="')[1:]}
    assert set(items) == {scene.APPROVAL, scene.LETTERS, "broken"}
    assert "Question: approve?" in items[scene.APPROVAL]
    assert "amount 420" in items[scene.APPROVAL]
    assert "post irreversible, call 3 of step 2" in items[scene.LETTERS]
    assert f"letter Dear Sir, {scene.SECRET}" in items[scene.LETTERS], "the arguments"
    assert "it raised: ConnectionError: the line went dead" in items[scene.LETTERS], "what is known"
    assert "no such supplier" in items["broken"]
    assert "On resume: continues after step 0" in items["broken"]
    assert "holdfast settle letters/in-doubt 3 --not-done" in items[scene.LETTERS], (
        "a page that only reads has commands"
    )


def test_the_number_of_the_inbox_is_on_every_page(page: Page) -> None:
    for path in ("/", "/threads", "/store", f"/thread?name={scene.BOOK}"):
        assert re.search(r'class="badge">3<span class="sr"> need you', page.ask("GET", path).text), path


def test_an_empty_inbox_says_so() -> None:
    with holdfast.open("memory:") as hf:
        found = Page(hf).get("/").text
        assert "Nothing needs you." in found
        assert 'class="badge"' not in found


def test_a_question_and_a_doubt_have_buttons_that_fit(writing: Page) -> None:
    found = writing.get("/").text
    items = {item.partition('"')[0]: item for item in found.split('data-key="')[1:]}
    for words in ('value="true"', 'value="false"', 'name="text"', "Answer with this JSON"):
        assert words in items[scene.APPROVAL]
    for outcome in ("happened", "not_done", "give_up"):
        assert f'name="outcome" value="{outcome}"' in items[scene.LETTERS]
    assert "/act/" not in items["broken"], "no worker could take it"


def test_a_call_that_waits_for_permission_is_not_said_to_be_in_doubt(writing: Page) -> None:
    hf = writing.hf
    hf.thread("payments").fork("trial", at="@1")
    with hf.run("trial", tools=[scene.pay]) as run:
        for _ in run.steps():
            run.tool("pay", {"amount": 70}, key="new")
    item = next(each for each in writing.get("/").text.split('data-key="')[1:] if each.startswith("trial"))
    assert "It waits for permission and has not been called." in text_of(item)
    assert "Allow the call" in item
    assert "It did not happen" not in item


# -- threads ----------------------------------------------------------------------------------------------------------


def test_threads_are_listed_with_what_they_are(filled: Holdfast) -> None:
    text = text_of(Page(filled).get("/threads").text)
    assert "writer/book" in text
    for status in ("in doubt", "waiting", "failed", "completed"):
        assert status in text
    assert "asks approve?" in text
    assert "1 call in doubt" in text
    assert "$0.1440" in text


def test_chips_count_the_whole_store_and_filter_it() -> None:
    with holdfast.open("memory:") as hf:
        for number in range(70):
            hf.thread(f"t{number:03}").save({})
        scene.asking(hf)
        page = Page(hf)
        found = page.get("/threads").text
        chips = dict(re.findall(r"<a href=[^>]*>(\w+) <b>(\d+)</b></a>", found))
        assert chips == {"all": "71", "saved": "70", "waiting": "1"}
        only = page.get("/threads", status="waiting").text
        assert re.findall(r'class="name" data-key="([^"]*)"', only) == [scene.APPROVAL]
        assert "<b>70</b>" in only, "a filter changes no count"


def test_threads_are_searched_filtered_and_sorted(page: Page) -> None:
    def names(**query: str) -> list[str]:
        return re.findall(r'class="name" data-key="([^"]*)"', page.get("/threads", **query).text)

    assert names()[0] == "payments", "the newest first"
    assert names(q="BOOK", order="name") == ["writer/book", "writer/book-b"]
    assert names(status="waiting") == ["approvals/42"]
    assert names(status="in doubt") == ["letters/in-doubt"]
    assert len(names(status="saved")) == 3
    assert names(order="longest", q="writer") == ["writer/book", "writer/book-b"]
    assert names(agent="buyer") == ["approvals/42"]
    assert len(names(tag="<b>")) == 1
    assert len(names(age="3600")) == len(names())
    assert names(q="nothing like it") == []
    assert page.get("/threads", status="odd").status_code == 400
    assert page.get("/threads", order="odd").status_code == 400


def test_a_list_is_given_page_by_page() -> None:
    with holdfast.open("memory:") as hf:
        for number in range(120):
            hf.thread(f"t{number:03}").save({})
        page = Page(hf)
        first = page.get("/threads").text
        assert first.count("data-key=") == 50
        more = re.search(r'href="([^"]*after=[^"]*)"', first)
        assert more is not None
        second = page.ask("GET", unescape(more[1])).text
        assert 'data-key="t069"' in second
        assert "First page" in second


def test_what_nobody_runs_does_not_look_as_if_it_ran(page: Page) -> None:
    row = page.get("/threads", q=scene.BOOK).text
    assert 'class="chip running"' not in row
    assert ">saved<" in row
    assert 'class="chip running"' not in page.get("/thread", name=scene.BOOK).text
    assert "chip running" not in step(page, "payments", "@1")
    assert "chip completed" in step(page, "payments")


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
        text = page.get("/threads", status=status).text
        assert name in text, status
        assert other not in text, status
    assert "released" in page.get("/thread", name="left in the middle").text


# -- the steps of a thread --------------------------------------------------------------------------------------------


def test_the_steps_show_branches_labels_forks_and_words(filled: Holdfast) -> None:
    found = Page(filled).get("/thread", name=scene.BOOK, part="steps").text
    assert found.count("data-step") == 12
    assert "abandoned" in found
    assert "good" in found
    assert "↳ writer/book-b" in found
    assert "headmark" in found
    assert "resumed" not in found
    assert "assistant: Chapter 12. Once upon a time." in text_of(found)
    calls = text_of(Page(filled).get("/thread", name="payments", part="steps").text)
    assert re.search(r"3 step, checkpoint 4: pay\b", calls), "the tools that were called"


def test_a_step_that_is_open_is_in_the_list(page: Page) -> None:
    found = text_of(page.get("/thread", name=scene.LETTERS, part="steps").text)
    assert "open step post in doubt" in found
    assert "↻ was waiting, resumed" in found


def test_a_long_list_of_steps_is_given_page_by_page() -> None:
    with holdfast.open("memory:") as hf:
        thread = hf.thread("long")
        for number in range(230):
            thread.save({"n": number})
        page = Page(hf)
        first = page.get("/thread", name="long", part="steps").text
        assert first.count("data-step") == 100
        rest = page.get("/thread", name="long", before=131, part="more").text
        assert rest.count("data-step") == 100
        assert "data-more" in rest
        last = page.get("/thread", name="long", before=31, part="more").text
        assert last.count("data-step") == 30
        assert "data-more" not in last
        old = page.get("/thread", name="long", at=thread.load("@7").id, part="steps").text
        assert 'aria-current="true"' in old, "the chosen step is in the list, however old it is"
        assert "Newest steps" in old


def test_money_is_told_in_its_own_currency_and_tokens_beside_it() -> None:
    with holdfast.open("memory:") as hf:
        thread = hf.thread("euro")
        for number in range(1, 4):
            thread.save({"n": number}, usage=Usage(input=100 * number, output=10, cost=0.5 * number, currency="EUR"))
        page = Page(hf)
        rows = text_of(page.get("/thread", name="euro", part="steps").text)
        assert re.findall(r"Σ (\S+) tok Σ (\S+ EUR)", rows) == [
            ("310", "1.50 EUR"),
            ("210", "1.00 EUR"),
            ("110", "0.5000 EUR"),
        ]
        plots = text_of(page.get("/thread", name="euro", part="plots").text)
        assert "1.50 EUR" in plots
        assert "$" not in rows + plots


def test_where_no_checkpoint_tells_it_a_row_has_what_its_calls_used(page: Page) -> None:
    rows = text_of(page.get("/thread", name="payments", part="steps").text)
    assert rows.count("13 tok") == 3
    assert "Σ" not in rows


# -- the chosen step --------------------------------------------------------------------------------------------------


def test_the_chosen_step_has_its_sections_in_order_on_every_store(filled: Holdfast) -> None:
    found = step(Page(filled), scene.LETTERS)
    ids = re.findall(r'<section id="(\w+)"', found)
    assert ids == ["changes", "messages", "calls", "state", "about"]
    assert "2 changes since step 0" in text_of(section(found, "changes"))
    assert "assistant: I look it up, and post the letter. · calls look_up" in text_of(section(found, "changes"))
    assert "irreversible" in section(found, "calls")
    assert "messages" in section(found, "state")
    assert "Digest" in section(found, "about")


def test_a_step_is_named_as_on_the_command_line(page: Page) -> None:
    thread = page.hf.thread(scene.BOOK)
    head, third = thread.load("@-1"), thread.load("@3")
    moment = f"{third.created_at:%Y-%m-%dT%H:%M:%S.%f}"
    refs = ["@3", third.id, f"@{third.id}", third.id[-8:], f"@{third.id[-8:]}", f"@{moment}", moment]
    for ref in refs:
        found = page.get("/thread", name=scene.BOOK, at=ref)
        assert third.id in (found.headers.get("location", "") if ref != third.id else third.id), ref
        compared = page.get("/thread", name=scene.BOOK, at=head.id, against=ref, part="chosen").text
        assert "since step 3" in text_of(compared), ref
    assert "did you mean" in page.get("/thread", name=scene.BOOK, at="@goood").text


def test_the_address_of_a_step_names_it_for_good(page: Page) -> None:
    answer = page.get("/thread", name=scene.BOOK, at="@-1")
    assert answer.status_code == 303
    head = page.hf.thread(scene.BOOK).head()
    assert head is not None
    assert f"at={head.id}" in answer.headers["location"]


def test_without_a_choice_the_head_is_chosen_also_when_it_moves(page: Page) -> None:
    assert "Step 9" in text_of(page.get("/thread", name=scene.BOOK, part="chosen").text)
    writer = page.hf.thread(scene.BOOK)
    writer.latest()
    writer.save({"new": 1})
    assert "Step 10" in text_of(page.get("/thread", name=scene.BOOK, part="chosen").text)


def test_calls_stand_beside_their_results_and_doubt_in_amber(page: Page) -> None:
    found = step(page, scene.LETTERS)
    assert re.search(r'class="call">.*look_up.*paper.*result.*price', section(found, "messages"), re.DOTALL)
    assert re.search(r'class="call doubt">.*?post', section(found, "messages"), re.DOTALL)
    assert 'class="effect doubt"' in section(found, "calls")
    assert "After this checkpoint" in section(found, "calls")


def test_calls_have_durations_and_how_they_were_settled(memory: Holdfast) -> None:
    memory.settle(scene.LETTERS, 3, holdfast.Happened("posted"), "ann")
    found = text_of(section(step(Page(memory), scene.LETTERS), "calls"))
    assert re.search(r"look_up done → .*? read · call 2 · <?\d+ms", found)
    assert "was in doubt, settled by a person by ann" in found


def test_calls_are_drawn_in_time(page: Page) -> None:
    found = section(step(page, "payments"), "calls")
    assert 'class="waterfall" role="img" aria-label="Calls in time' in found
    assert re.findall(r'<rect [^>]*class="(\w+)"', found) == ["model", "tool"]


def test_new_messages_are_told_from_earlier_ones(page: Page) -> None:
    found = section(step(page, scene.BOOK), "messages")
    assert "9 earlier messages" in text_of(found)
    assert found.count('class="message assistant new"') == 1


def test_markdown_is_rendered_and_can_be_seen_as_it_was_written() -> None:
    with holdfast.open("memory:") as hf:
        text = "# Plan\n\n*do* it: [here](javascript:x) ![i](http://x/y.png) <b>bold</b>\n\n| a |\n|---|\n| 1 |"
        hf.thread("t").save({"messages": [{"role": "assistant", "content": text}]})
        page = Page(hf)
        shown = section(step(page, "t"), "messages")
        assert '<p class="heading">Plan</p>' in shown
        assert "<em>do</em>" in shown
        assert "<table>" in shown
        assert "[here](javascript:x)" in shown, "a link is shown as it was written"
        assert "<img" not in shown
        assert "&lt;b&gt;bold&lt;/b&gt;" in shown
        assert "*do* it" in section(step(page, "t", text="plain"), "messages")


def test_data_of_an_adapter_is_hidden_until_it_is_asked_for() -> None:
    with holdfast.open("memory:") as hf:
        for number in range(2):
            hf.thread("t").save({"seen": number, "$versions": {"a": number}})
        page = Page(hf)
        found = step(page, "t")
        assert "1 change since" in text_of(section(found, "changes"))
        assert "$versions" not in section(found, "changes") + section(found, "state")
        found = step(page, "t", internal="1")
        assert "$versions" in section(found, "changes")
        assert "$versions" in section(found, "state")


def test_messages_of_langgraph_are_shown_by_their_fields() -> None:
    fields = {"content": "Hello", "type": "human"}
    wrapped = {"$ext": 5, "payload": ["langchain_core.messages.human", "HumanMessage", fields, "model_validate_json"]}
    with holdfast.open("memory:") as hf:
        hf.thread("t").save({"messages": [wrapped]})
        found = step(Page(hf), "t")
        assert "user" in section(found, "messages")
        assert "content : Hello" in text_of(section(found, "state"))
        assert "langchain_core" not in section(found, "state")
        assert "langchain_core" in section(step(Page(hf), "t", internal="1"), "state")


def test_steps_are_compared_with_the_one_before_or_any(page: Page) -> None:
    assert "$.chapter" in text_of(section(step(page, scene.BOOK), "changes"))
    assert "since step 1" in text_of(section(step(page, scene.BOOK, against="@1"), "changes"))
    head = page.hf.thread(scene.BOOK).load("@-1").id
    assert page.get("/thread", name=scene.BOOK, at=head, against="@nothing").status_code == 404
    assert "0 changes since" in text_of(section(step(page, "writer/book-b"), "changes"))
    other = text_of(section(step(page, "writer/book-b", against="writer/book@-1"), "changes"))
    assert "since writer/book step 9" in other


def test_a_call_that_is_under_way_is_not_in_doubt() -> None:
    seen: list[str] = []

    @holdfast.tool(effect="irreversible")
    def pay(amount: int) -> int:
        seen.append(step(Page(hf), "live"))
        return amount

    with holdfast.open("memory:") as hf, hf.run("live", start={"messages": []}, tools=[pay]) as run:
        for _ in run.steps():
            run.tool("pay", {"amount": 1}, key="a")
            run.finish(1)
            break
    calls = section(seen[0], "calls")
    assert 'class="tool"' in calls
    assert "under way" in calls
    assert not re.search(r'class="[^"]*doubt', calls)


def test_what_a_resume_would_do_is_told_with_the_command_and_the_code(page: Page) -> None:
    text = text_of(page.get("/thread", name=scene.LETTERS).text)
    assert "What a resume would do now" in text
    assert "needs a decision" in text
    assert "holdfast settle letters/in-doubt" in text
    failed = text_of(page.get("/thread", name="broken").text)
    assert "holdfast resume APP broken" in failed
    assert "with hf.run('broken') as run:" in failed


def test_the_page_of_a_completed_run_shows_its_result(memory: Holdfast) -> None:
    with memory.run("done", start={}) as run:
        run.finish({"paid": 7})
    assert 'Result: {"paid":7}' in text_of(Page(memory).get("/thread", name="done").text)


# -- figures of a thread ----------------------------------------------------------------------------------------------


def test_plots_are_drawn_of_what_is_known(page: Page) -> None:
    found = page.get("/thread", name=scene.BOOK, part="plots").text
    assert found.count("<figure") == 3
    assert page.get("/thread", name=scene.LETTERS, part="plots").text.count("<figure") == 1
    paid = page.get("/thread", name="payments", part="plots").text
    assert "per model over time" in paid
    assert re.search(r"<td class=\"num\">3</td><td class=\"num\">30</td><td class=\"num\">9</td>", paid), "per model"


def test_a_plot_is_of_what_led_to_the_head(page: Page) -> None:
    found = page.get("/thread", name=scene.BOOK, part="plots").text
    points = re.findall(r"[\d.]+,([\d.]+)", found.partition('<polyline points="')[2].partition('"')[0])
    heights = [float(each) for each in points]
    assert heights == sorted(heights, reverse=True), "a branch that was left would be a tooth in it"


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_state_is_read_and_downloaded_as_json(page: Page) -> None:
    found = page.get("/state", name=scene.BOOK)
    assert '"chapter": 12' in found.text
    assert found.headers["content-type"] == "text/plain; charset=utf-8"
    file = page.get("/state", name=scene.BOOK, at="@2", download="1")
    assert file.headers["content-disposition"] == 'attachment; filename="state-2.json"'
    assert file.headers["content-type"] == "application/octet-stream"


def test_a_thread_is_exported(memory: Holdfast) -> None:
    page = Page(memory)
    starts = {"markdown": "# `writer/book`", "html": "<!doctype html>", "jsonl": "{"}
    for kind, start in starts.items():
        found = page.get("/export", name=scene.BOOK, format=kind)
        assert found.text.lower().startswith(start), kind
        assert found.headers["content-disposition"].startswith('attachment; filename="thread.')
    assert page.get("/export", name=scene.BOOK, format="odd").status_code == 400
    assert page.get("/export", name="nothing", format="html").status_code == 404
    redacting = Page(memory, redact=str.upper)
    assert redacting.get("/export", name=scene.BOOK, format="jsonl").status_code == 400, "it is written unchanged"
    assert "jsonl" not in redacting.get("/thread", name=scene.BOOK).text
    assert "CHAPTER 12" in redacting.get("/export", name=scene.BOOK, format="markdown").text


# -- search, workers, the store ---------------------------------------------------------------------------------------


def test_names_messages_and_states_are_searched(page: Page) -> None:
    found = text_of(page.get("/search", q="chapter 11").text)
    assert "writer/book step 9 · $.messages[8].content" in found
    assert "Chapter 11 . Once upon a time." in found
    assert "Names" in page.get("/search", q="letters").text
    assert "No hits in 7 threads" in text_of(page.get("/search", q="no such text").text)
    assert page.get("/search").status_code == OK


def test_workers_and_the_queue_are_listed(memory: Holdfast) -> None:
    memory.submit("clerk", "job", start={}, priority=3)
    page = Page(memory)
    with memory.run("held", start={}):
        found = text_of(page.get("/workers").text)
    assert re.search(r"Process \d+ on \S+, 1 run", found)
    assert re.search(r"held 1 \d+s left", found)
    assert re.search(r"job clerk 0 3 for a worker", found)
    assert "approvals/42 buyer 1 for a person" in found


def test_the_store_tells_its_size_and_verifies_itself(page: Page) -> None:
    assert page.get("/store").status_code == OK
    assert "Checkpoints" in page.get("/store", part="figures").text
    assert page.post("verify").status_code == 303
    until(lambda: "no problems" in page.get("/store", part="verification").text)


def test_a_count_of_the_store_is_shared_by_who_asks_at_once() -> None:
    counted: list[int] = []

    def count() -> object:
        counted.append(1)
        clock[0] += 5.0  # so long it takes
        return object()

    clock = [100.0]
    figures = Figures(count, lambda: clock[0])
    first = figures.get()
    assert figures.get() is first
    clock[0] += 99.0
    assert figures.get() is first
    clock[0] += 2.0
    assert figures.get() is not first
    assert len(counted) == 2
    figures.expire()
    figures.get()
    assert len(counted) == 3


# -- pages and parts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "link", "shown"),
    [("/store", "with=figures", "Checkpoints"), (f"/thread?name={scene.BOOK}", "with=plots", "Size of the state")],
)
def test_without_scripts_a_link_leads_to_what_takes_its_time(page: Page, path: str, link: str, shown: str) -> None:
    first = page.ask("GET", path).text
    assert shown not in first
    found = re.search(rf'<noscript><a href="([^"]*{link}[^"]*)"', first)
    assert found is not None
    assert shown in page.ask("GET", unescape(found[1])).text


def test_without_scripts_filters_have_a_button(page: Page) -> None:
    assert '<noscript><button type="submit">Show</button></noscript>' in page.get("/threads").text


def mark_when_complete(page: Page, **asked: str) -> str:
    """The mark of a part of a thread's page. On a busy machine the first answers do not yet have all of its texts."""
    marks: list[str] = []
    while len(marks) < 2 or marks[-1] != marks[-2]:
        marks.append(page.get("/thread", **asked).headers["etag"])
    return marks[-1]


def test_a_part_that_did_not_change_is_not_sent_again(page: Page) -> None:
    mark = mark_when_complete(page, name=scene.BOOK, part="steps")
    whole = page.get("/thread", name=scene.BOOK).text
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
        ("/thread?name=writer/book&at=@99", 404),
        ("/state?name=nothing", 404),
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


# -- children, JSON and calls at a glance ------------------------------------------------------------------------------


def test_child_runs_are_listed_below_their_parent(memory: Holdfast) -> None:
    scene.ordering(memory)
    memory.thread("newer").save({})
    page = Page(memory)
    rows = re.findall(r'<tr class="depth(\d)".*?data-key="([^"]*)"[^>]*>([^<]*)<', page.get("/threads").text, re.DOTALL)
    assert rows[:2] == [("0", "newer", "newer"), ("0", scene.ORDER, scene.ORDER)]
    assert [(depth, name) for depth, _, name in rows[2:6]] == [("1", f"/ink-{n}") for n in (4, 3, 2, 1)]
    alone = page.get("/threads", q="ink-2").text
    assert '<tr class="depth0"' in alone
    assert "child of " + scene.ORDER in text_of(alone), "the parent is not on this page"


def test_a_call_shows_its_arguments_and_result_at_a_glance(memory: Holdfast) -> None:
    scene.ordering(memory)
    calls = section(step(Page(memory), scene.ORDER), "calls")
    summaries = [text_of(each) for each in re.findall(r"<summary>.*?</summary>", calls, re.DOTALL)]
    assert "done → Order 4 I look up paper and ink, then I pay. paper ink model" in summaries[0]
    assert 'pay done (amount=4) → {"paid":4} irreversible' in summaries[-1]


def test_json_is_coloured_and_its_text_is_unchanged() -> None:
    value = {"a": [1, -2.5, True, None], "b<": 'x"<script>'}
    markup = coloured(value)
    assert unescape(re.sub(r"<[^>]*>", "", markup)) == as_json(value)
    assert '<span class="key">&#34;a&#34;</span>' in markup
    assert '<span class="lit">-2.5</span>' in markup
    assert '<span class="lit">true</span>' in markup
    assert "<script>" not in markup


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"name": scene.BOOK, "at": "@99"}, f"thread '{scene.BOOK}' has no checkpoint '@99' Back to {scene.BOOK}"),
        ({"name": "no()"}, "there is no thread 'no()' Go to the inbox"),
        ({"name": "writer/bok"}, "there is no thread 'writer/bok'; did you mean 'writer/book'? Go to the inbox"),
    ],
)
def test_an_error_has_no_python_and_a_way_back(page: Page, query: dict[str, str], message: str) -> None:
    found = page.get("/thread", **query)
    assert found.status_code == 404
    assert message in text_of(found.text)


def test_an_empty_field_and_wrong_json_are_named(memory: Holdfast) -> None:
    page = Page(memory, allow_write=True)
    found = page.post("fork", thread=scene.BOOK, id="@-1", name="")
    assert "the field “name” is empty; nothing was done" in text_of(found.text)
    assert f"Back to {scene.BOOK}" in text_of(found.text)
    wrong = text_of(page.post("answer", thread=scene.APPROVAL, name="approve?", value="yes").text)
    assert 'Write a text in quotes, like "yes".' in wrong
    other = text_of(page.post("answer", thread=scene.APPROVAL, name="other", value="1").text)
    assert "has not asked 'other'; nothing was stored. It has asked 'approve?'." in other
    assert "early" not in other


def test_columns_of_markdown_are_aligned_without_inline_styles() -> None:
    with holdfast.open("memory:") as hf:
        table = "| item | price |\n|---|---:|\n| ink | 31 |\n"
        hf.thread("t").save({"messages": [{"role": "assistant", "content": table}]})
        found = step(Page(hf), "t")
    assert " style=" not in found, "the policy of the page forbids them"
    assert '<td class="right">31</td>' in found


def test_an_argument_with_parts_is_shown_over_several_lines() -> None:
    with holdfast.open("memory:") as hf:
        options = [{"name": name, "price": 120, "rating": 4.5} for name in ("Tejo", "Rossio")]
        with hf.run("trip", start={}) as run:
            for _ in run.steps():
                run.wait("which?", {"options": options, "nights": [1, 2]})
        found = Page(hf).get("/").text
    assert '<th scope="row">options</th><td><pre' in found
    assert '<th scope="row">nights</th><td><code>[1,2]</code>' in found


def test_a_result_that_was_added_is_told_in_words() -> None:
    with holdfast.open("memory:") as hf:
        thread = hf.thread("t")
        call = {"id": "1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
        messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
        thread.save({"messages": messages})
        thread.save({"messages": [*messages, {"role": "tool", "tool_call_id": "1", "content": "two flights found"}]})
        changes = step(Page(hf), "t").partition('id="changes"')[2].partition("</section>")[0]
        assert "tool: two flights found" in text_of(changes)
