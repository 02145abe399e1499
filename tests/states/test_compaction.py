"""Ways to make a conversation shorter."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from holdfast import Holdfast, InvalidArgument
from holdfast.states import Breaker, Conversation, Message, SlidingWindow, SnipResults, Summarise, ToolCall, Way
from tests.covers import covers


class Counted(Conversation):
    """Each message is as many tokens as it has characters."""

    def tokens_of(self, message: Message) -> int:
        return len(message.text)


def ask(*ids: str) -> Message:
    return Message.assistant("", tool_calls=[ToolCall("read", id=each) for each in ids])


def texts(talk: Conversation) -> list[str]:
    return [each.text or ",".join(call.id for call in each.tool_calls) for each in talk.messages]


def with_results(budget: int = 100) -> Counted:
    talk = Counted(budget=budget, prompt="P")
    talk.push(Message.user("go"), ask("1"), Message.tool("1", "x" * 30), ask("2"))
    talk.push(Message.tool("2", "y" * 30, tool_name="write", is_error=True), Message.assistant("done"))
    return talk


@covers("smooth/CompactionStrategy.SlidingWindow", "smooth/Conversation.compact")
@covers("smooth/CompactionResult.messages_removed", "smooth/CompactionResult.tokens_before")
@covers("smooth/CompactionResult.tokens_after", "smooth/Compaction.order")
def test_a_sliding_window_drops_the_oldest_down_to_three_fifths() -> None:
    talk = Counted(budget=20, prompt="PPPP")
    talk.push(Message.system("S"), *(Message.user(text * 3) for text in "abcdef"))
    done = talk.compact(SlidingWindow())
    assert texts(talk) == ["S", "eee", "fff"]
    assert (done.removed, done.shortened, done.added) == (4, 0, 0)
    assert (done.tokens_before, done.tokens_after) == (23, 11)


def test_a_sliding_window_drops_whole_turns_and_never_the_newest() -> None:
    talk = Counted(budget=10)
    talk.push(Message.user("a"), ask("1"), Message.tool("1", "b" * 9), ask("2"), Message.tool("2", "c" * 9))
    talk.compact(SlidingWindow())
    assert texts(talk) == ["2", "c" * 9]
    assert talk.is_resumable()


def test_a_sliding_window_keeps_what_was_said_last_also_ahead_of_a_system_message() -> None:
    talk = Counted(budget=5)
    talk.push(Message.user("aaaa"), Message.user("bbbb"), Message.system("note"))
    talk.compact(SlidingWindow())
    assert texts(talk) == ["bbbb", "note"]


def test_a_sliding_window_leaves_what_fits() -> None:
    talk = Counted(budget=20)
    talk.push(Message.user("abc"))
    done = talk.compact(SlidingWindow())
    assert (done.removed, texts(talk)) == (0, ["abc"])


@covers("smooth/CompactionStrategy.SnipToolResults", "smooth/Compaction.ids", "smooth/CompactionResult.tokens_after")
def test_snipping_names_the_tool_and_how_it_went_and_keeps_the_pairs() -> None:
    talk = with_results()
    before = list(talk.messages)
    done = talk.compact(SnipResults(keep=1))
    assert texts(talk) == ["go", "1", "[read: ok]", "2", "[write: error]", "done"]
    assert (done.removed, done.shortened, done.added) == (0, 2, 0)
    assert talk.is_resumable()
    assert [each.id for each in talk.messages] == [each.id for each in before]
    assert talk.messages[2].data == {"snipped": 30}
    assert done.tokens_after < done.tokens_before


@covers("smooth/CompactionStrategy.SnipToolResults.recent")
def test_snipping_leaves_the_newest_alone_and_what_is_short() -> None:
    talk = with_results()
    talk.messages[2] = Message.tool("1", "tiny")
    talk.compact(SnipResults(keep=2))
    assert texts(talk) == ["go", "1", "tiny", "2", "y" * 30, "done"]


def test_snipping_twice_is_snipping_once() -> None:
    talk = with_results()
    talk.compact(SnipResults(keep=0))
    once = list(talk.messages)
    assert talk.compact(SnipResults(keep=0)).shortened == 0
    assert talk.messages == once


@covers("smooth/CompactionStrategy.default")
def test_without_a_way_results_are_snipped_but_of_the_newest_ten() -> None:
    talk = with_results()
    talk.push(*(Message.user(str(n)) for n in range(8)))
    talk.compact()
    assert texts(talk)[:6] == ["go", "1", "[read: ok]", "2", "y" * 30, "done"]


@covers("smooth/CompactionStrategy.Summarize", "smooth/CompactionResult.summary_injected", "smooth/Compaction.ids")
@covers("smooth/Compaction.order")
def test_a_summary_takes_the_place_of_what_is_older() -> None:
    talk = Counted(budget=100, prompt="P")
    talk.push(Message.system("S"), *(Message.user(text) for text in "abcd"))
    kept = talk.messages[-2:]
    done = talk.compact(Summarise("two letters", keep=2))
    assert texts(talk) == ["S", "[summary of earlier messages] two letters", "c", "d"]
    assert talk.messages[-2:] == kept
    assert (done.removed, done.added) == (2, 1)
    assert talk.messages[1].role == "system"


def test_a_summary_does_not_cut_a_turn() -> None:
    talk = Counted(budget=100)
    talk.push(Message.user("a"), ask("1", "2"), Message.tool("1", "b"), Message.tool("2", "c"), Message.user("d"))
    talk.compact(Summarise("an a", keep=2))
    assert texts(talk)[1:] == ["1,2", "b", "c", "d"]
    assert talk.is_resumable()


def test_a_summary_leaves_a_turn_that_is_open() -> None:
    talk = Counted(budget=100)
    talk.push(Message.user("a"), ask("1"))
    talk.compact(Summarise("an a", keep=0))
    assert texts(talk)[1:] == ["1"]


def test_a_turn_that_nobody_will_answer_any_more_can_go() -> None:
    for way in (Summarise("SHORT", keep=1), SlidingWindow()):
        talk = Counted(budget=5)
        talk.push(Message.user("aaaa"), ask("1"), Message.user("bbbb"))
        talk.compact(way)
        assert texts(talk)[-1] == "bbbb"
        assert talk.is_resumable()


class Starred(Message, frozen=True, kw_only=True):
    stars: int = 0


class StarredTalk(Conversation):
    # Lists are invariant, for who puts something in: here that is the class itself.
    messages: list[Starred] = msgspec.field(default_factory=list)  # type: ignore[assignment]


def test_a_summary_among_messages_of_ones_own_is_one_of_them(hf: Holdfast) -> None:
    talk = StarredTalk(messages=[Starred.user("a", stars=3), Starred.user("b", stars=1)])
    talk.compact(Summarise("SHORT", keep=1))
    assert [(type(each), each.stars) for each in talk.messages] == [(Starred, 0), (Starred, 1)]
    thread = hf.thread("starred", type=StarredTalk)
    thread.save(talk)
    assert thread.load("@-1").state == talk


def test_all_can_be_summarised() -> None:
    talk = Counted(budget=100)
    talk.push(Message.user("a"), Message.user("b"))
    talk.compact(Summarise("letters", keep=0))
    assert texts(talk) == ["[summary of earlier messages] letters"]


def test_a_later_summary_takes_the_place_of_the_earlier_one() -> None:
    talk = Counted(budget=100)
    talk.push(*(Message.user(text) for text in "abc"))
    talk.compact(Summarise("one", keep=1))
    talk.push(Message.user("d"))
    seen: list[str] = []

    def summary(old: list[Message]) -> str:
        seen.extend(each.text for each in old)
        return "two"

    talk.compact(Summarise(summary, keep=1))
    assert seen == ["[summary of earlier messages] one", "c"]
    assert texts(talk) == ["[summary of earlier messages] two", "d"]


def no_summary(_: list[Message]) -> None:
    return None


@covers("smooth/CompactionStrategy.Summarize.none", "smooth/CompactionResult.summary_injected")
@pytest.mark.parametrize("summary", [None, "", no_summary])
def test_without_a_summary_nothing_is_done(summary: str | None) -> None:
    talk = Counted(budget=100)
    talk.push(*(Message.user(text) for text in "abc"))
    done = talk.compact(Summarise(summary, keep=1))
    assert (texts(talk), done.removed, done.added) == (["a", "b", "c"], 0, 0)


def test_a_function_is_not_asked_for_a_summary_of_nothing() -> None:
    def summary(_: list[Message]) -> str:
        raise AssertionError("asked")

    talk = Counted(budget=100)
    talk.push(Message.system("S"), Message.user("a"))
    talk.compact(Summarise(summary, keep=1))
    assert texts(talk) == ["S", "a"]


@covers("smooth/CompactionStrategy.Layered")
def test_a_further_way_is_gone_only_if_it_is_still_too_long() -> None:
    enough, more = with_results(budget=100), with_results(budget=20)
    for talk in (enough, more):
        talk.compact(SnipResults(keep=1), Summarise("s", keep=1))
    assert texts(enough) == ["go", "1", "[read: ok]", "2", "[write: error]", "done"]
    assert texts(more) == ["[summary of earlier messages] s", "done"]


def test_how_short_is_short_enough_can_be_said() -> None:
    talk = Counted(budget=20)
    talk.push(*(Message.user(text * 3) for text in "abcd"))
    talk.compact(SlidingWindow(), to=0.3)
    assert texts(talk) == ["ccc", "ddd"]


@pytest.mark.parametrize("to", [float("nan"), float("inf"), -0.1, "x", True, None])
def test_how_short_is_short_enough_is_a_share(to: float) -> None:
    talk = with_results()
    before = list(talk.messages)
    with pytest.raises(InvalidArgument, match="to must be a share of the budget, 0 or more"):
        talk.compact(to=to)
    assert talk.messages == before


@pytest.mark.parametrize("way", ["hello", SlidingWindow])
def test_what_is_no_way_is_refused_before_anything_is_changed(way: Way) -> None:
    talk = with_results()
    before = list(talk.messages)
    with pytest.raises(InvalidArgument, match=r"takes instances of Way, such as SlidingWindow\(\)"):
        talk.compact(SnipResults(keep=0), way)
    assert talk.messages == before


def test_a_way_of_ones_own() -> None:
    class Last(Way, frozen=True):
        def shorten(self, messages: Sequence[Message], limit: int, count: object) -> list[Message]:
            return list(messages[-1:])

    talk = Counted(budget=20)
    talk.push(Message.user("a"), Message.user("b"))
    assert talk.compact(Last()).removed == 1
    with pytest.raises(NotImplementedError, match="Way must override shorten"):
        talk.compact(Way())


@pytest.mark.parametrize("keep", [-1, 1.5, True])
def test_how_many_to_keep_is_a_number(keep: int) -> None:
    with pytest.raises(InvalidArgument, match="keep must be a whole number"):
        SnipResults(keep=keep)
    with pytest.raises(InvalidArgument, match="keep must be a whole number"):
        Summarise("s", keep=keep)


@covers("smooth/ReactiveCompaction.new", "smooth/ReactiveCompaction.record_success")
@covers("smooth/ReactiveCompaction.record_failure", "smooth/ReactiveCompaction.is_circuit_open")
@covers("smooth/ReactiveCompaction.stats", "smooth/CompactionStats")
def test_a_breaker_opens_after_three_failures_in_a_row() -> None:
    breaker = Breaker()
    assert (breaker.successes, breaker.failures, breaker.in_a_row, breaker.is_open) == (0, 0, 0, False)
    breaker.failed()
    breaker.failed()
    assert (breaker.in_a_row, breaker.is_open) == (2, False)
    breaker.succeeded()
    assert (breaker.successes, breaker.failures, breaker.in_a_row) == (1, 2, 0)
    for _ in range(3):
        breaker.failed()
    assert breaker.is_open
    assert msgspec.json.decode(msgspec.json.encode(breaker), type=Breaker) == breaker
    assert Breaker(limit=1, in_a_row=1).is_open
