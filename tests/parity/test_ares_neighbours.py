"""What stands beside ares' checkpoints: its loop detector and its emergency stop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from holdfast import Budget, Halted, Holdfast, LoopGuard, Run, ToolNotDone, tool
from holdfast.states import Conversation, Message
from tests.parity.covering import covers
from tests.runs.conftest import World

SAME = "I am sorry, I cannot help with that."


def answers(hf: Holdfast, thread: str, said: Iterable[str], *guards: LoopGuard | Budget) -> list[str]:
    """An agent that gives these answers, one a step; those it came to give, and the run is as its guards left it."""
    left, given = iter(said), list[str]()

    def answer() -> str:
        given.append(next(left))
        return given[-1]

    try:
        with hf.run(thread, start={}, guards=guards) as run:
            for _ in run.steps():
                run.model(answer)
    except (Halted, StopIteration, RuntimeError):
        return given
    raise AssertionError("an agent without end")


def status(hf: Holdfast, thread: str) -> str:
    return next(info.status for info in hf.threads(prefix=thread) if info.name == thread)


@covers("ares", "LoopDetector.repeat_threshold", "LoopAction.HaltAgent")
def test_the_same_answer_so_often_is_a_loop(hf: Holdfast) -> None:
    assert LoopGuard() == LoopGuard(window=10, repeats=3)
    assert answers(hf, "three", [SAME] * 9, LoopGuard()) == [SAME] * 3
    assert status(hf, "three") == "halted"
    assert answers(hf, "five", [SAME] * 9, LoopGuard(repeats=5)) == [SAME] * 5


@covers("ares", "LoopAction.HaltAgent")
def test_the_reason_of_the_halt_is_told(hf: Holdfast) -> None:
    def agent() -> None:
        with hf.run("loop", start={}, guards=[LoopGuard()]) as run:
            for _ in run.steps():
                run.model(lambda: SAME)

    with pytest.raises(Halted, match="the same answer 3 times within the last 10 calls"):
        agent()
    info = hf.run_info("loop")
    assert info is not None
    assert info.status == "halted"
    assert "the same answer 3 times within the last 10 calls" in (info.reason or "")
    # A checkpoint can carry it, too, for who saves without a run.
    hf.thread("own").save({}, status="halted", reason="loop detected")
    found = hf.thread("own").find(status="halted")
    assert found is not None
    assert found.reason == "loop detected"


@covers("ares", "LoopDetector.normalised")
def test_white_space_and_case_make_no_difference(hf: Holdfast) -> None:
    said = ["Hello   world, how are you?", "hello world,\n\thow are you?", "HELLO world, how are you?", "other"]
    assert len(answers(hf, "loop", said, LoopGuard())) == 3


@covers("ares", "LoopDetector.no_loop")
def test_different_answers_are_no_loop(hf: Holdfast) -> None:
    said = ["Hello, how can I help?", "I can assist with that.", "Here is what I found.", "Anything else?"]
    assert answers(hf, "fine", said, LoopGuard()) == said
    assert status(hf, "fine") == "failed"  # by the end of what it had to say, not by the guard


@covers("ares", "LoopDetector.window")
def test_what_is_not_among_the_newest_any_more_is_no_loop(hf: Holdfast) -> None:
    said = [SAME, SAME, "Something completely different.", "Another unique output.", SAME, "The last one."]
    assert answers(hf, "wide", said, LoopGuard(window=10, repeats=3)) == said[:5]
    assert answers(hf, "narrow", said, LoopGuard(window=3, repeats=3)) == said


@covers("ares", "LoopConfig", "LoopConfig.max_iterations")
def test_the_limits_are_values_that_go_to_json_and_back(hf: Holdfast) -> None:
    guard, budget = LoopGuard(window=5, repeats=2), Budget(steps=50)
    assert msgspec.json.decode(msgspec.json.encode(guard), type=LoopGuard) == guard
    assert Budget(**msgspec.json.decode(msgspec.json.encode(budget))) == budget
    said = [f"answer number {'x' * n}" for n in range(6)]
    assert answers(hf, "limited", said, Budget(steps=3)) == said[:3]
    assert answers(hf, "unlimited", said) == said


@covers("ares", "LoopState")
def test_what_was_counted_survives_a_restart(hf: Holdfast) -> None:
    def same() -> str:
        return SAME

    def step(run: Run) -> None:
        for _ in run.steps():
            run.model(same)
            run.save()
            return

    for _ in range(3):
        with hf.run("loop", start={}, guards=[LoopGuard()]) as run:
            step(run)
    with pytest.raises(Halted), hf.run("loop", guards=[LoopGuard()]) as run:
        step(run)


@covers("ares", "LoopConfig.count_failed_iterations")
def test_iterations_that_fail_count(hf: Holdfast) -> None:
    tried: list[int] = []

    @tool(effect="idempotent")
    def fetch(page: int) -> None:
        tried.append(page)
        raise ToolNotDone("no network")

    def agent() -> None:
        with hf.run("fetching", start={}, tools=[fetch], guards=[Budget(steps=2)]) as run:
            for step in run.steps():
                with contextlib.suppress(ToolNotDone):
                    run.tool(fetch, {"page": step})

    with pytest.raises(Halted):
        agent()
    assert tried == [1, 2]


@covers("ares", "LoopConfig.halt_on_consecutive_failures")
@pytest.mark.parametrize("attempts", [1, 3])
def test_so_many_failures_one_after_the_other_end_a_run(world: World, attempts: int) -> None:
    begun: list[int] = []

    def failing(run: Run) -> None:
        begun.append(run.attempt)
        raise RuntimeError("no luck")

    hf = world.open()
    hf.submit("failing", "unlucky", start={})
    for _ in range(attempts + 2):
        world.open().worker({"failing": failing}, attempts=attempts).run(until_idle=True)
        world.pass_time(200)
    assert begun == list(range(1, attempts + 1))
    info = hf.run_info("unlucky")
    assert info is not None
    assert (info.status, info.attempt) == ("dead", attempts)
    assert "no luck" in (info.reason or "")


@covers("ares", "LoopConfig.halt_on_consecutive_failures")
def test_a_success_begins_to_count_anew(hf: Holdfast) -> None:
    def attempt(*, is_saved: bool) -> int:
        with contextlib.suppress(RuntimeError), hf.run("unlucky", start={}) as run:
            if is_saved:
                run.save()
            raise RuntimeError("no luck")
        return run.attempt

    # The third follows one failure since the last success, not two.
    assert [attempt(is_saved=saved) for saved in (False, True, False, False)] == [1, 2, 2, 3]


class Detector:
    """Tells an agent that it repeats itself: first a warning, then that it must do otherwise, then the guard halts."""

    def __init__(self, threshold: int = 3) -> None:
        self.threshold = threshold
        self.told: list[str] = []

    def look(self, talk: Conversation, **options: Any) -> str | None:
        repeats = talk.repeats(**options)
        if repeats < self.threshold:
            return None
        word = "You are repeating yourself." if repeats == self.threshold else "Try something else."
        self.told.append(word)
        return word


@covers("ares", "LoopAction.InjectWarning", "LoopAction.ForceAlternative", "LoopAction.HaltAgent")
def test_a_loop_is_warned_of_then_redirected_then_halted(hf: Holdfast) -> None:
    detector = Detector()

    def agent() -> None:
        guards = [LoopGuard(window=10, repeats=6)]
        with hf.run("loop", start=Conversation(), type=Conversation, guards=guards) as run:
            for _ in run.steps():
                run.state.push(Message.assistant(run.model(lambda: SAME)))
                word = detector.look(run.state)
                if word is not None:
                    run.state.push(Message.system(word))

    with pytest.raises(Halted, match="6 times"):
        agent()
    assert detector.told == ["You are repeating yourself.", *["Try something else."] * 3]


def talking(*said: str) -> Conversation:
    return Conversation(messages=[Message.assistant(text) for text in said])


@covers("ares", "LoopDetector.min_output_len", "LoopDetector.reset", "LoopDetector.stats", "LoopState")
def test_short_answers_do_not_count_and_a_new_conversation_begins_without_repeats(hf: Holdfast) -> None:
    assert talking("ok", "ok", "ok", "ok").repeats() == 0
    talk = talking(SAME, "Something else entirely.", SAME)
    assert (talk.answers(), talk.repeats()) == (3, 2)
    hf.thread("talk", type=Conversation).save(talk)
    assert hf.thread("talk", type=Conversation).load("@-1").state.repeats() == 2
    assert talking(SAME).repeats() == 1


@covers("ares", "LoopDetector.fuzzy")
def test_answers_that_are_nearly_the_same_can_be_counted_as_one() -> None:
    def alike(one: str, other: str) -> bool:
        common = sum(1 for _ in _common(one, other))
        return common * 5 >= min(len(one), len(other)) * 4

    talk = talking(*(f"Let me try running the tests again to see what {word}." for word in ("fails", "breaks", "is")))
    assert (talk.repeats(), talk.repeats(alike=alike)) == (1, 3)


def _common(one: Sequence[str], other: Sequence[str]) -> Iterable[str]:
    for left, right in zip(one, other, strict=False):
        if left != right:
            return
        yield left


@covers("ares", "EmergencyStop")
def test_every_run_can_be_halted_and_a_stopped_worker_takes_up_nothing_more(hf: Holdfast) -> None:
    begun, go_on = threading.Event(), threading.Event()
    finished: list[str] = []

    def work() -> str:
        begun.set()
        assert go_on.wait(30)
        return "done"

    def handler(run: Run) -> None:
        run.model(work)
        run.save()
        finished.append(run.thread)

    hf.submit("handler", "first", start={})
    hf.submit("handler", "second", start={})
    worker = hf.worker({"handler": handler}, concurrency=1)
    serving = _thread(worker.run)
    assert begun.wait(30)
    with hf.run("waiting", start={}) as run:
        run.wait("approval")
    worker.stop()
    going = [info.name for state in ("running", "queued", "waiting") for info in hf.threads(status=state)]
    assert going == ["first", "second", "waiting"]
    for name in going:
        hf.cancel(name, "emergency stop")
    hf.submit("handler", "third", start={})
    go_on.set()
    serving.join(30)
    assert not serving.is_alive()
    for name in going:
        info = hf.run_info(name)
        assert info is not None
        assert (info.status, info.reason) == ("halted", "emergency stop")
    assert finished == []
    # It is no lock on the store: who has another worker goes on with it.
    assert status(hf, "third") == "queued"
    hf.worker({"handler": handler}).run(until_idle=True)
    assert finished == ["third"]


def _thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
