"""What Smooth does to make a conversation shorter, done by `holdfast.states`."""

from __future__ import annotations

import copy

import msgspec

from holdfast import Holdfast
from holdfast.states import (
    Breaker,
    Compacted,
    Conversation,
    Message,
    SlidingWindow,
    SnipResults,
    Summarise,
    ToolCall,
)
from tests.parity.covering import covers


def call_and_result(name: str, result: str, *, is_error: bool = False) -> list[Message]:
    call = ToolCall(name)
    return [Message.assistant(tool_calls=[call]), Message.tool(call, result, is_error=is_error)]


def texts(conversation: Conversation) -> list[str]:
    return [each.text for each in conversation.messages]


@covers("smooth", "Conversation.needs_compaction")
def test_a_conversation_is_too_long_above_four_fifths() -> None:
    conversation = Conversation(budget=100, prompt="S")
    conversation.push(*(Message.user("XXXX") for _ in range(39)))
    assert conversation.tokens() == 79
    assert not conversation.needs_compaction()
    conversation.push(Message.user("XXXX"))
    assert conversation.tokens() == 81
    assert conversation.needs_compaction()
    assert not Conversation(budget=100_000, prompt="Sys", messages=[Message.user("Hello")]).needs_compaction()


@covers("smooth", "CompactionStrategy.SlidingWindow", "Conversation.compact", "CompactionResult.messages_removed")
@covers("smooth", "CompactionResult.tokens_before", "CompactionResult.tokens_after")
def test_the_oldest_go_until_three_fifths_are_left() -> None:
    conversation = Conversation(budget=30, prompt="Sys")
    conversation.push(Message.system("kept"), *(Message.user(f"msg-{n:03}") for n in range(10)))
    before = conversation.tokens()
    done = conversation.compact(SlidingWindow())
    left = len(conversation.messages)
    assert texts(conversation) == ["kept", *(f"msg-{n:03}" for n in range(11 - left, 10))]
    assert done == Compacted(
        removed=11 - left, shortened=0, added=0, tokens_before=before, tokens_after=conversation.tokens()
    )
    assert 0 < conversation.tokens() <= 30 * 3 / 5 < conversation.tokens() + 2
    assert conversation.window()[0].text == "Sys"


@covers("smooth", "CompactionStrategy.SnipToolResults", "Conversation.compact")
def test_old_results_become_a_line_with_tool_and_outcome() -> None:
    conversation = Conversation(budget=100_000, prompt="Sys", messages=[Message.user("do something")])
    conversation.push(*call_and_result("read_file", "file contents here, lots of data " * 5))
    conversation.push(*call_and_result("write_file", "Error: " + "no room " * 9, is_error=True))
    conversation.push(Message.user("thanks"), Message.assistant("you're welcome"))
    done = conversation.compact(SnipResults(keep=2))
    assert [text for text in texts(conversation) if text.startswith("[")] == ["[read_file: ok]", "[write_file: error]"]
    assert not any("file contents" in text for text in texts(conversation))
    assert done.shortened == 2
    assert done.tokens_after < done.tokens_before
    assert conversation.is_resumable()


@covers("smooth", "CompactionStrategy.SnipToolResults.recent")
def test_the_newest_results_stay() -> None:
    conversation = Conversation(budget=100_000)
    conversation.push(*call_and_result("old_tool", "old result " * 9), *call_and_result("new_tool", "new result " * 9))
    conversation.push(Message.assistant("done"))
    conversation.compact(SnipResults(keep=3))
    assert texts(conversation) == ["", "[old_tool: ok]", "", "new result " * 9, "done"]


@covers("smooth", "CompactionStrategy.default", "CompactionStrategy.clone")
def test_by_default_results_are_snipped_but_of_the_newest_ten() -> None:
    assert SnipResults() == SnipResults(keep=10) == copy.copy(SnipResults()) != SnipResults(keep=9)
    assert msgspec.json.decode(msgspec.json.encode(SnipResults(keep=9)), type=SnipResults) == SnipResults(keep=9)
    conversation = Conversation()
    for n in range(6):
        conversation.push(*call_and_result(f"tool_{n}", "x" * 100))
    conversation.compact()
    assert [text[:1] for text in texts(conversation)[1::2]] == ["[", "x", "x", "x", "x", "x"]


@covers("smooth", "CompactionStrategy.Summarize", "CompactionResult.summary_injected")
def test_what_is_older_becomes_a_summary() -> None:
    conversation = Conversation(prompt="Sys")
    conversation.push(Message.system("rules"), *(Message.user(f"u{n}") for n in range(6)))
    done = conversation.compact(Summarise("six greetings", keep=2))
    assert (done.removed, done.added) == (4, 1)
    assert texts(conversation)[0] == "rules"
    assert "six greetings" in texts(conversation)[1]
    assert texts(conversation)[2:] == ["u4", "u5"]


@covers("smooth", "CompactionStrategy.Summarize.none", "CompactionResult.summary_injected")
def test_without_a_summary_nothing_is_done() -> None:
    conversation = Conversation(messages=[Message.user(f"u{n}") for n in range(6)])
    done = conversation.compact(Summarise(None, keep=2))
    assert (done.removed, done.added, len(conversation.messages)) == (0, 0, 6)


@covers("smooth", "CompactionStrategy.Layered")
def test_first_results_are_snipped_and_if_that_is_not_enough_it_is_summarised() -> None:
    def conversation(budget: int) -> Conversation:
        made = Conversation(budget=budget, prompt="S")
        for n in range(5):
            made.push(*call_and_result(f"tool_{n}", "x" * 80))
        made.push(Message.user("final"), Message.assistant("ok"))
        return made

    enough, more = conversation(1000), conversation(40)
    first = enough.compact(SnipResults(keep=2), Summarise("five tools", keep=2))
    second = more.compact(SnipResults(keep=2), Summarise("five tools", keep=2))
    assert (first.removed, first.shortened, first.added) == (0, 5, 0)
    assert (second.removed, second.added) == (10, 1)
    assert texts(more)[1:] == ["final", "ok"]
    assert second.tokens_after < second.tokens_before
    assert more.window()[0].text == "S"


@covers("smooth", "Compaction.order", "Compaction.ids")
def test_what_is_left_keeps_its_order_its_ids_and_its_times(hf: Holdfast) -> None:
    conversation = Conversation(budget=30, prompt="System")
    for n in range(10):
        conversation.push(Message.user(f"u{n}"), Message.assistant(f"a{n}"))
    thread = hf.thread("talk", type=Conversation)
    thread.save(conversation)
    before = {each.id: each for each in conversation.messages}
    conversation.compact(SlidingWindow())
    kept = thread.load(thread.save(conversation)).state.messages
    assert 0 < len(kept) < 20
    assert [before[each.id] for each in kept] == kept
    assert [each.id for each in kept] == list(before)[-len(kept) :]


@covers("smooth", "ReactiveCompaction.new", "ReactiveCompaction.record_failure", "ReactiveCompaction.record_success")
@covers("smooth", "ReactiveCompaction.is_circuit_open", "ReactiveCompaction.stats", "CompactionStats")
def test_attempts_are_counted_and_given_up_after_three_failures_in_a_row(hf: Holdfast) -> None:
    breaker = Breaker()
    assert (breaker.in_a_row, breaker.successes, breaker.failures, breaker.is_open) == (0, 0, 0, False)
    for outcome in (breaker.succeeded, breaker.failed, breaker.succeeded, breaker.failed, breaker.failed):
        outcome()
    assert (breaker.successes, breaker.failures, breaker.in_a_row, breaker.is_open) == (2, 3, 2, False)
    assert msgspec.json.decode(msgspec.json.encode(breaker), type=Breaker) == breaker
    hf.thread("breaker", type=Breaker).save(breaker)
    resumed: Breaker = hf.thread("breaker", type=Breaker).load("@-1").state
    resumed.failed()
    assert resumed.is_open
