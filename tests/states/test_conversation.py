"""A conversation: what of it is sent, whether it can go on, what was said."""

from __future__ import annotations

import itertools
import random

import pytest

from holdfast import InvalidArgument
from holdfast.errors import TooLarge
from holdfast.states import Conversation, Message, Prompt, ToolCall
from tests.covers import covers


class Counted(Conversation):
    """Each message is as many tokens as it has characters."""

    def tokens_of(self, message: Message) -> int:
        return len(message.text)


def ask(*ids: str) -> Message:
    return Message.assistant("", tool_calls=[ToolCall("read", id=each) for each in ids])


def texts(messages: list[Message]) -> list[str]:
    return [each.text or ",".join(call.id for call in each.tool_calls) for each in messages]


@covers("smooth/Conversation.context_window", "smooth/Conversation.context_window.trims")
@covers("smooth/Conversation.with_system_prompt", "smooth/Conversation.push", "smooth/Conversation.max_context_tokens")
def test_the_window_begins_with_the_prompt_and_ends_with_the_newest() -> None:
    talk = Counted(budget=10, prompt="SS")
    talk.push(*(Message.user(text * 3) for text in "abcd"))
    assert texts(talk.window()) == ["SS", "ccc", "ddd"]
    assert talk.window()[0].role == "system"


def test_the_window_holds_all_that_fits_exactly() -> None:
    talk = Counted(budget=11, prompt="SS")
    talk.push(*(Message.user(text * 3) for text in "abcd"))
    assert texts(talk.window()) == ["SS", "bbb", "ccc", "ddd"]


@covers("smooth/Conversation.context_window", "smooth/Conversation.context_window.small")
def test_system_messages_are_always_in_it_in_their_order() -> None:
    talk = Counted(budget=6, prompt="P")
    talk.push(Message.system("1"), Message.user("aaaa"), Message.system("2"), Message.user("bb"))
    assert texts(talk.window()) == ["P", "1", "2", "bb"]


@covers("smooth/Conversation.with_cached_system_prompt")
def test_two_windows_of_one_conversation_are_equal() -> None:
    talk = Conversation(prompt=Prompt("You are kind. ", "It is Monday."))
    talk.push(Message.user("Hello"))
    assert talk.window() == talk.window()
    assert [each.text for each in talk.window()] == ["You are kind. It is Monday.", "Hello"]


@covers("smooth/Conversation.new", "smooth/Conversation.is_empty", "smooth/Conversation.total_tokens")
def test_an_empty_conversation_has_an_empty_window() -> None:
    assert Conversation().window() == []
    assert Conversation().tokens() == 0
    assert texts(Conversation(prompt="P").window()) == ["P"]


@pytest.mark.parametrize("talk", [Counted(budget=4, prompt="P" * 5), Counted(budget=4, prompt="PP")])
def test_what_cannot_fit_is_said_and_not_left_out(talk: Counted) -> None:
    talk.push(Message.user("old"), Message.user("new"))
    with pytest.raises(TooLarge, match="tokens over the budget of 4; shorten them, or raise the budget"):
        talk.window()


def test_a_prompt_alone_may_be_too_large() -> None:
    with pytest.raises(TooLarge, match="1 tokens over"):
        Counted(budget=4, prompt="P" * 5).window()


@covers("smooth/Conversation.context_window.pairs")
def test_a_call_and_its_answers_are_cut_off_together() -> None:
    talk = Counted(budget=9)
    talk.push(Message.user("aaa"), ask("1", "2"), Message.tool("1", "bbb"), Message.tool("2", "ccc"))
    talk.push(Message.user("ddd"))
    assert texts(talk.window()) == ["1,2", "bbb", "ccc", "ddd"]
    talk.budget = 8
    assert texts(talk.window()) == ["ddd"]


def test_what_nobody_answered_before_it_went_on_is_left_out() -> None:
    talk = Conversation()
    talk.push(Message.user("a"), ask("1", "2"), Message.tool("1", "b"), Message.user("never mind"))
    talk.push(Message.assistant("fine"))
    assert texts(talk.window()) == ["a", "never mind", "fine"]


def test_calls_that_nobody_answered_are_left_out_when_the_user_goes_on() -> None:
    talk = Conversation()
    talk.push(Message.user("a"), ask("1", "2"), Message.tool("1", "b"))
    assert texts(talk.window()) == ["a", "1,2", "b"]
    talk.push(Message.user("go on"))
    assert texts(talk.window()) == ["a", "go on"]
    assert [call.id for call in talk.unanswered()] == ["2"]


def test_an_answer_that_comes_after_somebody_spoke_is_none() -> None:
    talk = Conversation()
    talk.push(ask("1", "2"), Message.tool("1", "b"), Message.user("hm"), Message.tool("2", "late"))
    assert texts(talk.window()) == ["hm"]
    assert [call.id for call in talk.unanswered()] == ["2"]


def test_a_system_message_does_not_come_between_a_call_and_its_answer() -> None:
    talk = Conversation()
    talk.push(ask("1", "2"), Message.system("note"), Message.tool("1", "b"), Message.system("more"))
    talk.push(Message.tool("2", "c"))
    assert talk.is_resumable()
    assert texts(talk.window()) == ["note", "more", "1,2", "b", "c"]


def test_answers_to_no_call_are_left_out() -> None:
    talk = Conversation()
    talk.push(Message.tool("0", "lost"), ask("1"), Message.tool("9", "other"), Message.tool("1", "b"))
    talk.push(Message.tool("1", "again"))
    assert texts(talk.window()) == ["1", "b"]


def test_a_second_answer_to_a_call_is_left_out() -> None:
    talk = Conversation()
    talk.push(ask("1", "2"), Message.tool("1", "b"), Message.tool("1", "again"), Message.tool("2", "c"))
    assert texts(talk.window()) == ["1,2", "b", "c"]
    assert not talk.is_resumable()


def test_the_last_turn_is_in_the_window_while_its_calls_are_open() -> None:
    talk = Conversation()
    talk.push(Message.user("a"), ask("1", "2"), Message.tool("2", "b"))
    assert texts(talk.window()) == ["a", "1,2", "b"]


@covers("smooth/Conversation.context_window.pairs", "smooth/Conversation.context_window")
def test_whatever_the_conversation_a_window_fits_and_is_whole() -> None:
    chance = random.Random(9)
    for _ in range(300):
        talk = Counted(budget=chance.randint(6, 40), prompt="PP")
        names = itertools.count()
        for _ in range(chance.randint(0, 12)):
            asked = [str(next(names)) for _ in range(chance.choice([0, 0, 1, 2, 3]))]
            if asked:
                talk.push(ask(*asked))
                for each in asked:
                    talk.push(*([Message.user("z")] if chance.random() < 0.05 else []))
                    talk.push(*([Message.tool(each, "x")] if chance.random() < 0.9 else []))
            else:
                talk.push(Message.user("yy"))
        window = talk.window()
        assert sum(map(talk.tokens_of, window)) <= talk.budget
        rest = Conversation(messages=[each for each in window if each.role != "system"])
        if talk.is_resumable():
            assert rest.is_resumable()
        else:
            open_calls = {call.id for call in rest.unanswered()}
            assert open_calls <= {call.id for call in talk.unanswered()}
            assert not open_calls or rest.messages[-1].role != "user"
        ids = [each.id for each in talk.messages]
        places = [ids.index(each.id) for each in rest.messages]
        assert places == sorted(places)


@covers("smooth/Conversation.total_tokens", "smooth/PromptCache.cached_tokens")
def test_tokens_are_counted_by_the_subclass() -> None:
    talk = Counted(budget=100, prompt="PP")
    talk.push(Message.user("abc"))
    assert talk.tokens() == 5


@covers("smooth/Conversation.needs_compaction")
def test_it_needs_compaction_above_four_fifths() -> None:
    talk = Counted(budget=100)
    talk.push(Message.user("x" * 80))
    assert not talk.needs_compaction()
    talk.push(Message.user("x"))
    assert talk.needs_compaction()


@covers("smooth/Conversation.max_context_tokens")
@pytest.mark.parametrize("budget", [0, -1, 1.5, True])
def test_a_budget_is_a_number_of_tokens(budget: int) -> None:
    with pytest.raises(InvalidArgument, match="budget must be a whole number"):
        Conversation(budget=budget)


@covers("smooth/Conversation.last_assistant_content", "smooth/Conversation.assistant_turn_count")
@covers("ares/LoopDetector.stats", "smooth/Conversation.new")
def test_what_the_assistant_said() -> None:
    talk = Conversation(prompt="P")
    assert (talk.last_answer(), talk.answers()) == (None, 0)
    talk.push(Message.user("a"), Message.assistant("first"), Message.user("b"), ask("1"), Message.tool("1", "x"))
    talk.push(Message.assistant("second"), Message.user("c"))
    assert (talk.last_answer(), talk.answers()) == ("second", 3)


def test_a_conversation_is_resumable_when_every_call_is_answered() -> None:
    talk = Conversation()
    assert talk.is_resumable()
    talk.push(Message.user("a"), ask("1", "2"), Message.tool("1", "b"))
    assert not talk.is_resumable()
    assert [call.id for call in talk.unanswered()] == ["2"]
    talk.push(Message.tool("2", "c"))
    assert talk.is_resumable()
    assert talk.unanswered() == []


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([Message.user("a"), ask("1")], "message 1 has calls without results"),
        ([ask("1"), Message.assistant("b"), Message.tool("1", "late")], "message 0 has calls without results"),
        ([ask("1"), Message.user("go on")], "message 0 has calls without results"),
        (
            [ask("1", "2"), Message.tool("1", "b"), Message.user("hm"), Message.tool("2", "c")],
            "message 0 has calls without results",
        ),
        ([Message.user("a"), Message.tool("1", "b")], "message 1 is a tool result without a call"),
        ([ask("1"), Message.tool("7", "b"), Message.tool("1", "c")], "message 1 is a tool result without a call"),
        ([ask("1", "2"), *(Message.tool(id, "b") for id in "112")], "message 2 is a tool result without a call"),
    ],
)
def test_what_no_provider_takes_is_named_by_its_place(messages: list[Message], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        Conversation(messages=messages).require_resumable()


@covers("ares/LoopAction.InjectWarning", "ares/LoopAction.ForceAlternative", "ares/LoopDetector.stats")
@covers("ares/LoopDetector.reset", "ares/LoopDetector.normalised")
def test_repeats_are_counted_without_case_and_white_space() -> None:
    talk = Conversation()
    for text in ("I looked and found nothing.", "Something else entirely.", "I LOOKED  and\nfound nothing."):
        talk.push(Message.assistant(text))
    assert talk.repeats() == 2
    assert talk.repeats(last=2) == 1


@covers("ares/LoopDetector.min_output_len")
def test_short_answers_are_no_repeats() -> None:
    talk = Conversation()
    talk.push(*(Message.assistant("ok") for _ in range(5)))
    assert talk.repeats() == 0
    assert talk.repeats(shortest=1) == 5
    talk.push(Message.assistant("an answer that is long enough"), Message.assistant("ok"))
    assert talk.repeats() == 0


@covers("ares/LoopDetector.fuzzy")
def test_what_is_nearly_the_same_can_be_counted() -> None:
    talk = Conversation()
    talk.push(*(Message.assistant(f"Let me run the tests again, {word}.") for word in ("now", "please", "once more")))
    assert talk.repeats() == 1
    assert talk.repeats(alike=lambda one, other: one[:20] == other[:20]) == 3


@pytest.mark.parametrize("last", [0, -1, 2.5, True])
def test_among_how_many_repeats_are_looked_for_is_a_number(last: int) -> None:
    talk = Conversation(messages=[Message.assistant("an answer that is long enough")])
    with pytest.raises(InvalidArgument, match="last must be a whole number, 1 or more"):
        talk.repeats(last=last)
