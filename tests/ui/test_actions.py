"""What the page does when it may: asked once more, done, and recorded with who did it. Nothing where it may not."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from holdfast import Conflict, Holdfast, Thread
from holdfast.threads.audit import ACTIONS
from holdfast.threads.scan import thread_named
from tests.ui import scene
from tests.ui.conftest import Page

FORMS: dict[str, dict[str, Any]] = {
    "fork": {"thread": scene.BOOK, "id": "@4", "name": "writer/again"},
    "rewind": {"thread": scene.BOOK, "id": "@4"},
    "label": {"thread": scene.BOOK, "id": "@2", "label": "early"},
    "answer": {"thread": scene.APPROVAL, "name": "approve?", "value": "true"},
    "settle": {"thread": scene.LETTERS, "effect": "3", "outcome": "not_done"},
    "cancel": {"thread": scene.APPROVAL, "reason": "no money"},
    "prune": {"thread": scene.BOOK, "keep_last": "3"},
}


def ann(_: HTTPConnection) -> str:
    return "ann"


def state_of_things(hf: Holdfast) -> list[object]:
    """All that an action could change."""
    threads = [(info.name, info.head, info.count, info.status) for info in hf.threads()]
    effects = [(each.number, each.status, each.result) for each in hf.effects(scene.LETTERS)]
    return [threads, effects, [(each.thread, each.name) for each in hf.waiting()]]


@pytest.mark.parametrize("action", [*FORMS, "resume", "nonsense"])
def test_a_page_that_only_reads_does_nothing(page: Page, action: str) -> None:
    before = state_of_things(page.hf)
    answer = page.post(action, **FORMS.get(action, {"thread": scene.BOOK}))
    assert answer.status_code == 404
    assert state_of_things(page.hf) == before


def test_a_page_that_only_reads_has_no_forms_that_do_something(page: Page, writing: Page) -> None:
    for path in ("/", f"/thread?name={scene.LETTERS}", "/threads"):
        assert 'method="post"' not in page.ask("GET", path).text
    assert 'method="post"' in writing.ask("GET", "/").text


@pytest.mark.parametrize("action", FORMS)
def test_each_action_is_asked_about_before_it_is_done(writing: Page, action: str) -> None:
    before = state_of_things(writing.hf)
    asked = writing.post(action, confirmed=False, **FORMS[action])
    assert asked.status_code == 200
    assert "Confirm" in asked.text
    assert state_of_things(writing.hf) == before
    done = writing.confirm(action, asked)
    assert done.status_code == 303, done.text
    assert state_of_things(writing.hf) != before


@pytest.mark.parametrize("action", FORMS)
def test_each_action_is_recorded_with_who_did_it(memory: Holdfast, action: str) -> None:
    page = Page(memory, allow_write=True, authorize=ann, hosts=None)
    assert page.post(action, **FORMS[action]).status_code == 303
    recorded = memory.thread(ACTIONS).load("@-1").state["actions"]
    assert [(each["who"], each["action"], each["thread"]) for each in recorded] == [
        ("ann", action, FORMS[action]["thread"])
    ]


def test_what_could_not_be_done_is_recorded_as_that(writing: Page) -> None:
    assert writing.post("fork", thread=scene.BOOK, id="@4", name="writer/book-b").status_code == 409
    recorded = writing.hf.thread(ACTIONS).load("@-1").state["actions"]
    assert [each.get("failed") for each in recorded] == [None, "AlreadyExists"]


def test_a_fork_begins_with_the_state_as_it_is(writing: Page) -> None:
    writing.post("fork", **FORMS["fork"])
    fork = writing.hf.thread("writer/again").load("@-1")
    assert fork.state == writing.hf.thread(scene.BOOK).load("@4").state


def test_a_fork_begins_with_the_state_that_was_edited(writing: Page) -> None:
    state = {
        "messages": [{"role": "user", "content": "another story"}],
        "when": {"$datetime": "2026-01-02T03:04:05.000000Z"},
    }
    answer = writing.post("fork", **FORMS["fork"], edited="1", state=json.dumps(state, indent=2))
    assert answer.status_code == 303
    found = writing.hf.thread("writer/again").load("@-1").state
    assert found["messages"] == state["messages"]
    assert found["when"].isoformat() == "2026-01-02T03:04:05+00:00"


@pytest.mark.parametrize("state", ["", "{", "nonsense", "null", '{"$cell": [1]}', "[" * 5000])
def test_an_edited_state_that_is_none_is_refused(writing: Page, state: str) -> None:
    answer = writing.post("fork", **FORMS["fork"], edited="1", state=state)
    assert answer.status_code == 400
    assert writing.hf.thread("writer/again").head() is None


def test_a_state_that_was_redacted_cannot_be_edited(memory: Holdfast) -> None:
    page = Page(memory, allow_write=True, redact=lambda text: text.replace(scene.SECRET, "[secret]"))
    id = memory.thread("broken").load("@-1").id
    for asked in ({}, {"edit": "1"}, {"part": "edit"}):
        found = page.get("/thread", name="broken", at=id, **asked).text
        assert 'name="state"' not in found
        assert "are redacted or lost" in found


def test_a_rewind_shows_the_effects_that_it_passes(writing: Page) -> None:
    asked = writing.post("rewind", confirmed=False, thread="payments", id="@1")
    assert "2 effects recorded after that step" in asked.text
    assert "irreversible" in asked.text
    assert writing.post("rewind", thread="payments", id="@1").status_code == 303
    assert writing.hf.thread("payments").step() == 1


def test_an_answer_is_said_to_be_by_whoever_gave_it(memory: Holdfast) -> None:
    page = Page(memory, allow_write=True, authorize=ann, hosts=None)
    page.post("answer", thread=scene.APPROVAL, name="approve?", value='{"approved": true}')
    [answered] = [each for each in memory.effects(scene.APPROVAL) if each.by is not None]
    assert answered.by == "ann"
    assert answered.result == {"approved": True}


def test_a_call_in_doubt_is_settled_with_its_result(writing: Page) -> None:
    writing.post("settle", thread=scene.LETTERS, effect="3", outcome="happened", value='{"posted": 1}')
    [effect] = [each for each in writing.hf.effects(scene.LETTERS) if each.number == 3]
    assert (effect.status, effect.result) == ("done", {"posted": 1})


@pytest.mark.parametrize(
    "form",
    [
        {"effect": "x", "outcome": "not_done"},
        {"effect": "3", "outcome": "odd"},
        {"effect": "3"},
        {"effect": "3", "outcome": "happened", "value": "{"},
    ],
)
def test_a_form_that_is_not_understood_does_nothing(writing: Page, form: dict[str, Any]) -> None:
    before = state_of_things(writing.hf)
    assert writing.post("settle", thread=scene.LETTERS, **form).status_code == 400
    assert state_of_things(writing.hf) == before


def test_pruning_shows_its_plan(writing: Page) -> None:
    asked = writing.post("prune", confirmed=False, **FORMS["prune"])
    assert re.search(r"\d checkpoints of", asked.text)
    assert "Steps to delete:" in asked.text
    before = writing.hf.thread(scene.BOOK).count()
    writing.post("prune", **FORMS["prune"])
    assert writing.hf.thread(scene.BOOK).count() < before


def test_a_label_names_the_state_and_leaves_the_head(writing: Page) -> None:
    head = writing.hf.thread(scene.BOOK).load("@-1").state
    assert writing.post("label", **FORMS["label"]).status_code == 303
    assert writing.hf.thread(scene.BOOK).load("@early").state["chapter"] == 2
    assert writing.hf.thread(scene.BOOK).load("@-1").state == head


def test_a_failed_run_with_a_handler_is_queued_again(writing: Page) -> None:
    hf = writing.hf
    hf.submit("clerk", "job", start={})
    hf.cancel("job", "not now")
    assert writing.post("resume", thread="job").status_code == 303
    assert hf.thread("job").head() is not None
    row = thread_named(hf.context.store, "job")
    assert row is not None
    run = hf.context.store.run(row.position.thread)
    assert run is not None
    assert run.status == "queued"


def test_what_no_worker_can_take_is_not_queued(writing: Page) -> None:
    assert writing.post("resume", thread="broken").status_code == 400
    assert writing.post("resume", thread=scene.BOOK).status_code == 404
    assert writing.post("resume", thread="payments").status_code in (400, 409)


# -- what was shown is what is done ------------------------------------------------------------------------------------


def test_a_rewind_that_would_pass_more_than_was_shown_is_asked_about_anew(writing: Page) -> None:
    hf = writing.hf
    head = hf.thread("payments").load("@-1")
    asked = writing.post("rewind", confirmed=False, thread="payments", id=head.id)
    assert "No effects were recorded" in asked.text
    with hf.run("payments", turn="again", tools=[scene.pay]) as run:
        for _ in run.steps():
            run.tool("pay", {"amount": 99}, key="more")
            run.finish("paid more")
            break
    paid = hf.thread("payments").load("@-1").id
    answer = writing.confirm("rewind", asked)
    assert answer.status_code == 409
    assert "1 effect recorded after that step" in answer.text
    assert hf.thread("payments").load("@-1").id == paid, "nothing was done"
    assert writing.confirm("rewind", answer).status_code == 303, "who saw that may mean it"
    assert hf.thread("payments").load("@-1").id == head.id


def test_a_prune_takes_what_was_shown_and_nothing_that_came_later(writing: Page) -> None:
    thread = writing.hf.thread("long")
    for number in range(5):
        thread.save({"n": number})
    asked = writing.post("prune", confirmed=False, thread="long", keep_last="3")
    assert "Steps to delete: 2, 1<" in asked.text
    for number in range(5):
        thread.save({"n": number})
    assert writing.confirm("prune", asked).status_code == 303
    assert [each.step for each in thread.history()] == list(range(10, 2, -1))


def test_a_prune_that_would_take_something_else_is_asked_about_anew(writing: Page) -> None:
    thread = writing.hf.thread("long")
    for number in range(5):
        thread.save({"n": number})
    asked = writing.post("prune", confirmed=False, thread="long", keep_last="3")
    thread.fork("other", at="@1")
    answer = writing.confirm("prune", asked)
    assert answer.status_code == 409
    assert "Steps to delete: 2<" in answer.text
    assert thread.count() == 5


def test_who_was_not_asked_is(writing: Page) -> None:
    form = {"seal": writing.seal(), "thread": scene.BOOK, "keep_last": "3", "shown": "yes", "confirmed": "yes"}
    answer = writing.send("prune", form)
    assert answer.status_code == 409
    assert "Confirm" in answer.text
    assert writing.hf.thread(ACTIONS).head() is None


# -- the record --------------------------------------------------------------------------------------------------------


def test_what_cannot_be_recorded_is_not_done(writing: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(self: Thread, *given: Any, **named: Any) -> Any:
        raise Conflict("somebody else was first")

    before = state_of_things(writing.hf)
    asked = writing.post("answer", confirmed=False, **FORMS["answer"])
    monkeypatch.setattr(Thread, "save", busy)
    answer = writing.confirm("answer", asked)
    assert answer.status_code == 409
    assert "could not be recorded" in answer.text
    assert state_of_things(writing.hf) == before


def test_the_record_is_not_changed_by_what_it_records(writing: Page) -> None:
    writing.post("label", **FORMS["label"])
    recorded = writing.hf.thread(ACTIONS).load("@-1").state
    id = writing.hf.thread(ACTIONS).load("@-1").id
    for action, form in {**FORMS, "resume": {}}.items():
        given: dict[str, Any] = {**form, "thread": ACTIONS, "id": id, "keep_last": "1"}
        answer = writing.post(action, **given)
        assert answer.status_code == 400, action
    assert writing.post("fork", thread=scene.BOOK, id="@1", name=ACTIONS).status_code == 400
    assert writing.hf.thread(ACTIONS).load("@-1").state == recorded
    assert writing.hf.thread(ACTIONS).count() == 1
    for page in (writing.get("/thread", name=ACTIONS), writing.get("/thread", name=ACTIONS, at=id)):
        assert page.status_code == 200
        assert "act/" not in page.text


@pytest.mark.parametrize("state", [{"messages": []}, [1], "text", {"actions": {}}, {"actions": [], "more": 1}])
def test_a_thread_of_that_name_that_is_no_record_is_left_alone(writing: Page, state: Any) -> None:
    writing.hf.thread(ACTIONS).save(state)
    before = state_of_things(writing.hf)
    answer = writing.post("answer", **FORMS["answer"])
    assert answer.status_code == 400
    assert "holds something else" in answer.text
    assert state_of_things(writing.hf) == before


# -- what is offered ---------------------------------------------------------------------------------------------------


def offered(page: Page, thread: str, *parts: str, **query: str) -> set[str]:
    """The actions in parts of the page of a thread: by default those on the thread, not on a step."""
    texts = [page.get("/thread", name=thread, part=part, **query).text for part in parts or ("head", "recovery")]
    return {action for text in texts for action in re.findall(r'action="/act/(\w+)"', text)}


def test_what_would_be_refused_is_not_offered(writing: Page) -> None:
    hf = writing.hf
    assert offered(writing, scene.BOOK) == {"prune"}, "this thread has no run"
    assert offered(writing, "payments") == {"prune"}, "its run is completed"
    assert offered(writing, scene.APPROVAL) == {"cancel", "answer"}, "one checkpoint cannot be pruned"
    assert offered(writing, "broken") == {"cancel"}, "no worker could take it"
    hf.submit("clerk", "job", start={})
    assert offered(writing, "job") == {"cancel"}
    hf.cancel("job", "not now")
    assert offered(writing, "job") == {"resume"}
    assert offered(writing, scene.BOOK, "chosen") == {"fork", "label"}, "the head is where it is"
    assert offered(writing, scene.BOOK, "chosen", at=hf.thread(scene.BOOK).load("@2").id) == {"fork", "label", "rewind"}


def test_a_label_is_offered_where_it_would_be_taken(writing: Page) -> None:
    for thread in (scene.BOOK, "payments", scene.APPROVAL):
        for checkpoint in writing.hf.thread(thread).history():
            is_offered = "label" in offered(writing, thread, "chosen", at=checkpoint.id)
            asked = writing.post("label", confirmed=False, thread=thread, id=checkpoint.id, label="x")
            assert is_offered == (asked.status_code == 200), (thread, checkpoint.step)
    book = writing.hf.thread(scene.BOOK).load("@2")
    assert "label" in offered(writing, scene.BOOK, "chosen", at=book.id)


def test_a_state_comes_to_the_browser_when_it_is_to_be_edited(writing: Page) -> None:
    """Every view of a step would carry it otherwise."""
    id = writing.hf.thread(scene.BOOK).load("@-1").id
    assert "<textarea" not in writing.get("/thread", name=scene.BOOK, at=id).text
    for asked in ({"edit": "1"}, {"part": "edit"}):
        found = writing.get("/thread", name=scene.BOOK, at=id, **asked).text
        assert "&#34;chapter&#34;: 12" in found
    assert (
        'href="/thread?name=writer%2Fbook&amp;at=' + id + '&amp;edit=1"'
        in writing.get("/thread", name=scene.BOOK, at=id).text
    )
