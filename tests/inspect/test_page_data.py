"""What the page shows of threads besides their records: words, times, costs, hits of a search, workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, InvalidArgument, Run
from holdfast.inspect import calls_in_words, message_in, search, spending, stories, timeline, waterfall, words_of, work
from tests.ui import scene


@pytest.fixture
def filled() -> Any:
    with holdfast.open("memory:") as hf:
        scene.fill(hf)
        yield hf


def test_a_step_is_told_by_its_tools_and_its_new_message(filled: Holdfast) -> None:
    steps = timeline(filled, scene.LETTERS).steps
    found = stories(filled, steps)
    newest = found[steps[0].checkpoint.seq]
    assert (newest.calls, newest.role, newest.words) == ("look_up", "assistant", "I look it up, and post the letter.")
    assert newest.tokens == 150
    hidden = stories(filled, steps, redacted=lambda value: "***" if type(value) is str else {"content": "***"})
    assert hidden[steps[0].checkpoint.seq].words == "***"


def test_a_message_is_told_by_the_step_that_added_it() -> None:
    with holdfast.open("memory:") as hf:
        for number in range(3):
            hf.thread("t").save({"messages": [{"role": "user", "content": "once"}], "n": number})
        found = stories(hf, timeline(hf, "t").steps)
    assert [found[seq].words for seq in (1, 2, 3)] == ["once", "", ""]


def test_calls_are_counted_by_name(filled: Holdfast) -> None:
    [call] = timeline(filled, "payments").steps[0].calls[1:]
    assert calls_in_words([call, call]) == "pay \u00d72"
    assert calls_in_words([]) == ""


def test_the_calls_of_a_child_are_nested_below_it() -> None:
    def child(run: Run) -> None:
        for _ in run.steps():
            run.tool(scene.look_up, {"item": "ink"})
            run.finish(1)
            break

    with holdfast.open("memory:") as hf:
        with hf.run("parent", start={}) as run:
            for _ in run.steps():
                with run.child("sub", start={}) as below:
                    child(below)
                run.tool(scene.look_up, {"item": "paper"})
                run.finish(1)
                break
        found = waterfall(hf, "parent", timeline(hf, "parent").steps[0].calls)
    assert [(bar.depth, bar.call.kind) for bar in found.bars] == [(0, "child"), (1, "read"), (0, "read")]
    assert found.bars[1].thread == found.bars[0].call.name
    assert all(0 <= bar.start <= found.seconds for bar in found.bars)


def test_tokens_and_cost_are_counted_per_model() -> None:
    replies = [("small", 10), ("large", 100), ("small", 20)]
    with holdfast.open("memory:") as hf:
        with hf.run("t", start={}) as run:
            for step in run.steps():
                model, tokens = replies[step - 1]
                run.model(lambda m=model, n=tokens: {"model": m, "usage": {"input_tokens": n, "output_tokens": 1}})
                if step == 3:
                    run.finish(1)
                    break
        found = spending(hf, "t")
    assert [(each.model, each.calls, each.input, each.output) for each in found.models] == [
        ("large", 1, 100, 1),
        ("small", 2, 30, 2),
    ]
    assert [tokens for _, tokens, _ in found.models[1].points] == [11, 32]
    assert found.skipped == 0


def test_messages_and_states_are_searched(filled: Holdfast) -> None:
    found = search(filled, "UPON a time")
    assert {hit.thread for hit in found.hits} == {scene.BOOK, "writer/book-b"}
    assert found.hits[0].match.casefold() == "upon a time"
    assert found.hits[0].path.startswith("$.messages[")
    assert found.hits[0].more > 0
    assert search(filled, "no such text anywhere").hits == ()
    with pytest.raises(InvalidArgument):
        search(filled, " ")


def test_a_search_continues_where_it_stopped() -> None:
    with holdfast.open("memory:") as hf:
        for number in range(120):
            hf.thread(f"t{number:03}").save({"n": f"needle {number}"})
        seen: list[str] = []
        after = None
        while True:
            found = search(hf, "needle", after=after, limit=1)
            seen += [hit.thread for hit in found.hits]
            after = found.after
            if after is None:
                break
    assert sorted(seen) == [f"t{number:03}" for number in range(120)]


def test_the_queue_and_the_workers_are_listed(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db", durability="off") as hf:
        hf.submit("clerk", "low", start={}, priority=-1)
        hf.submit("clerk", "high", start={}, priority=5)
        scene.asking(hf)
        with hf.run("held", start={}):
            found = work(hf)
    assert [item.thread for item in found.queued] == ["high", "low"]
    [worker] = found.workers
    assert [(item.thread, item.attempt) for item in worker.runs] == [("held", 1)]
    assert worker.runs[0].lease is not None
    assert [(item.thread, item.is_asking) for item in found.waiting] == [(scene.APPROVAL, True)]
    assert not found.is_cut


def test_a_message_that_is_data_is_shown_as_json() -> None:
    assert (
        words_of(message_in({"role": "assistant", "content": {"paid": True, "to": None}}))
        == '{"paid": true, "to": null}'
    )
    assert words_of(message_in({"role": "assistant", "content": None})) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("**Result: refundable**, with *two* remarks", "Result: refundable, with two remarks"),
        ("# Order\n\n- `ink`, then\n- 2*3", "Order ink, then 2*3"),
        ("```python\nrun()\n```", "run()"),
        ("word " * 40, "word " * 27 + "word\u2026"),
    ],
)
def test_the_first_words_have_no_markdown_and_say_that_there_are_more(text: str, words: str) -> None:
    assert words_of(message_in({"role": "assistant", "content": text})) == words
