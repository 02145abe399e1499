"""The identity of calls: which recorded call answers which call of a repeated step."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import AsyncRun, Conflict, Happened, InvalidArgument, NotDone, Run
from holdfast.errors import EffectMismatch, ToolNotDone
from holdfast.runs.tools import Tools
from tests.runs.conftest import World
from tests.runs.set_agent import INVOICES
from tests.stores.postgres.server import reused_address_at


class Channel:
    """A service with one method, by which its subclasses differ."""

    def __init__(self, word: str = "") -> None:
        self.sent: list[str] = []
        self.word = word

    def send(self, to: str) -> str:
        self.sent.append(to)
        return f"{type(self).__name__}{self.word} to {to}"


class Mail(Channel):
    pass


class Sms(Channel):
    pass


class Till:
    """Tools that note what they did."""

    def __init__(self) -> None:
        self.paid: list[Any] = []
        self.keys: list[str] = []

    def pay(self, amount: int) -> str:
        self.paid.append(amount)
        return f"paid {amount}"

    def unpay(self, amount: int) -> None:
        self.paid.remove(amount)

    def charge(self, amount: int) -> str:
        self.paid.append(amount)
        return f"charged {amount}"

    def note(self, amount: int) -> str:
        return f"noted {amount}"


# -- functions of the same name ---------------------------------------------------------------------------------------


def test_functions_of_one_name_in_two_modules_are_two_tools(world: World) -> None:
    sent: list[str] = []
    made: list[Any] = []
    for module in ("mail", "sms"):
        code = f"def send(to):\n    sent.append({module!r})\n    return {module!r}\n"
        exec(code, space := {"__name__": module, "sent": sent})  # noqa: S102 - as if imported
        made.append(space["send"])
    with world.dying("t", start={}) as run:
        assert [run.tool(send, {"to": "ada"}, key="1") for send in made] == ["mail", "sms"]
    with world.running("t") as run:
        assert [run.tool(send, {"to": "ada"}, key="1") for send in made] == ["mail", "sms"]
    assert sent == ["mail", "sms"]


def test_a_method_that_two_classes_inherit_is_two_tools(world: World) -> None:
    mail, sms = Mail(), Sms()
    with world.running("t", start={}) as run:
        for key in ("1", None):
            assert run.tool(mail.send, {"to": "ada"}, key=key) == "Mail to ada"
            assert run.tool(sms.send, {"to": "ada"}, key=key) == "Sms to ada"
    assert len(mail.sent) == len(sms.sent) == 2


def test_methods_of_two_objects_with_one_key_are_refused(world: World) -> None:
    one, other = Mail(" of one"), Mail(" of the other")
    for _ in range(2):
        with world.running("t", start={}) as run:
            assert run.tool(one.send, {"to": "ada"}, key="1") == "Mail of one to ada"
            with pytest.raises(InvalidArgument, match="another function"):
                run.tool(other.send, {"to": "ada"}, key="1")
    assert (one.sent, other.sent) == (["ada"], [])


def test_two_lambdas_with_one_key_are_refused(world: World) -> None:
    with world.running("t", start={}) as run:
        assert run.tool(lambda: "one", key="1") == "one"
        with pytest.raises(InvalidArgument, match="another function"):
            run.tool(lambda: "other", key="1")


def test_a_tool_called_again_with_its_key_is_answered(world: World) -> None:
    def make() -> Any:
        def send(to: str) -> str:
            sent.append(to)
            return to

        return send

    sent: list[str] = []
    with world.running("t", start={}) as run:
        for _ in range(2):
            assert run.tool(make(), {"to": "ada"}, key="1") == "ada"
            assert run.tool(functools.partial(make(), to="bob"), key="2") == "bob"
    assert sent == ["ada", "bob"]


def test_partials_are_told_apart_by_what_they_bind(world: World) -> None:
    sent: list[str] = []

    def send(channel: str, to: str) -> str:
        sent.append(channel)
        return f"{channel} to {to}"

    def both(run: Run) -> list[str]:
        tools = [functools.partial(send, channel=channel) for channel in ("mail", "sms")]
        keyed = [run.tool(each, {"to": "ada"}, key="1") for each in tools]
        return keyed + [run.tool(each, {"to": "ada"}) for each in tools]

    with world.dying("t", start={}) as run:
        assert both(run) == ["mail to ada", "sms to ada"] * 2
    with world.running("t") as run:
        assert both(run) == ["mail to ada", "sms to ada"] * 2
        assert [effect.name for effect in world.open().effects("t")] == ["send"] * 4
    assert sent == ["mail", "sms"] * 2


def test_a_partial_of_something_that_cannot_be_stored_needs_a_name(world: World) -> None:
    def send(client: Any, to: str) -> str:
        return f"to {to}"

    bound = functools.partial(send, object())
    with world.running("t", start={}) as run:
        with pytest.raises(InvalidArgument, match="name="):
            run.tool(bound, {"to": "ada"})
        assert run.tool(holdfast.tool(name="send")(bound), {"to": "ada"}) == "to ada"
    with pytest.raises(InvalidArgument, match="two tools are named 'send'"):
        Tools([functools.partial(send, 1), functools.partial(send, 2)])


def test_a_declared_name_is_the_identity(world: World) -> None:
    till = Till()
    first = holdfast.tool(name="pay")(till.pay)
    moved = holdfast.tool(name="pay")(till.charge)
    with world.dying("t", start={}) as run:
        run.tool(first, {"amount": 5}, key="1")
    with world.running("t") as run:
        assert run.tool(moved, {"amount": 5}, key="1") == "paid 5"
    assert till.paid == [5]


def test_an_undone_or_rewound_call_is_matched_by_its_function(world: World) -> None:
    mail, sms = Mail(), Sms()
    with world.running("t", start={}) as run:
        run.save()
        run.tool(mail.send, {"to": "ada"})
        run.save()
    world.open().thread("t").rewind("@1", past_effects=True)
    with world.running("t") as run:
        assert run.tool(sms.send, {"to": "ada"}) == "Sms to ada"
        assert run.tool(mail.send, {"to": "ada"}) == "Mail to ada"
    assert (mail.sent, sms.sent) == (["ada"], ["ada"])


# -- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "of the page"])
def test_a_model_function_gets_its_own_reply(world: World, key: str | None) -> None:
    def summarize(text: str) -> str:
        return f"summary of {text}"

    def translate(text: str) -> str:
        return f"translation of {text}"

    with world.dying("t", start={}) as run:
        assert run.model(summarize, "a page", key=key) == "summary of a page"
    with world.running("t") as run:
        assert run.model(translate, "a page", key=key) == "translation of a page"
        assert [effect.name for effect in run.changed] == [summarize.__qualname__] * (key is not None)
        assert run.model(summarize, "a page", key=key) == "summary of a page"
    partials = [functools.partial(lambda task, text: f"{task} {text}", task) for task in ("translate", "summarize")]
    with world.dying("u", start={}) as run:
        run.model(partials[1], "a page")
    with world.running("u") as run:
        run.model(partials[1], "a page")
        assert run.model(partials[0], "a page") == "translate a page"


def test_models_are_matched_by_their_arguments(world: World) -> None:
    asked: list[str] = []

    def model(prompt: str) -> str:
        asked.append(prompt)
        return f"reply to {prompt}"

    with world.dying("t", start={}) as run:
        for prompt in ("a", "b"):
            run.model(model, prompt)
    with world.running("t") as run:
        assert run.model(model, "b") == "reply to b"
        assert run.model(model, "a") == "reply to a"
        assert run.changed == ()
    assert asked == ["a", "b"]


def test_a_model_that_gets_a_client_is_matched_by_the_rest(world: World) -> None:
    def model(client: object, prompt: str) -> str:
        return f"reply to {prompt}"

    with world.dying("t", start={}) as run:
        for prompt in ("a", "b"):
            run.model(model, object(), prompt)
    with world.running("t") as run:
        assert run.model(model, object(), "b") == "reply to b"


def test_a_recorded_reply_does_not_answer_two_prompts(world: World) -> None:
    def model(prompt: str) -> str:
        return f"reply to {prompt}"

    with world.dying("t", start={}) as run:
        run.model(model, "a")
    with world.failing("t", InvalidArgument) as run:
        assert run.model(model, "b") == "reply to a", "as if the prompt of this call had changed"
        assert [effect.number for effect in run.changed] == [1]
        run.model(model, "a")
    with world.failing("u", InvalidArgument, start={}) as run:
        run.model(model, "a", key="1")
        run.model(model, "b", key="1")


def test_what_changed_is_readable_after_the_block(world: World) -> None:
    def look(word: str) -> str:
        return word

    read = holdfast.tool(effect="read")(look)
    with world.dying("t", start={}) as run:
        run.tool(read, {"word": "a"}, key="1")
        run.model(lambda prompt: prompt, "a", key="2")
    with world.running("t", ends="completed") as run:
        assert run.tool(read, {"word": "b"}, key="1") == "a"
        assert run.model(lambda prompt: prompt, "b", key="2") == "a"
        run.finish()
    assert [effect.number for effect in run.changed] == [1, 2]


# -- arguments, keys and functions that changed -----------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["irreversible", "idempotent"])
@pytest.mark.parametrize("is_done", [True, False])
def test_other_arguments_for_a_recorded_call_are_refused(world: World, effect: Any, is_done: bool) -> None:
    till = Till()
    tool = holdfast.tool(effect=effect, name="pay")(till.pay)
    with world.dying("t", start={}) as run:
        if is_done:
            run.tool(tool, {"amount": 5}, key="1")
        else:
            run.tool(holdfast.tool(effect=effect, name="pay")(lambda amount: world.kill(run)), {"amount": 5}, key="1")
    with world.failing("t", EffectMismatch) as run:
        run.tool(tool, {"amount": 6}, key="1")
    assert till.paid == [5] * is_done


def test_a_call_that_did_not_happen_may_be_made_with_other_arguments(world: World) -> None:
    till = Till()

    @holdfast.tool(name="pay", effect="idempotent")
    def pay(amount: int, idempotency_key: str) -> str:
        till.keys.append(idempotency_key)
        if amount > 5:
            raise ToolNotDone("too much")
        return till.pay(amount)

    def agent(run: Run) -> str:
        try:
            return str(run.tool(pay, {"amount": 6}, key="1"))
        except ToolNotDone:
            return str(run.tool(pay, {"amount": 5}, key="1"))

    with world.dying("t", start={}) as run:
        assert agent(run) == "paid 5"
    with world.running("t") as run:
        assert agent(run) == "paid 5"
    assert len(set(till.keys)) == 2, "an idempotency key belongs to one set of arguments"


def test_the_idempotency_key_of_a_failed_call_is_not_used_for_other_arguments(world: World) -> None:
    till = Till()

    @holdfast.tool(effect="idempotent")
    def reserve(item: str, idempotency_key: str) -> str:
        till.keys.append(idempotency_key)
        if item == "paper":
            raise TimeoutError("no answer")
        return item

    with world.running("t", start={}) as run:
        with pytest.raises(TimeoutError):
            run.tool(reserve, {"item": "paper"})
        with pytest.raises(TimeoutError):
            run.tool(reserve, {"item": "paper"})
        run.tool(reserve, {"item": "ink"})
        run.tool(reserve, {"item": "ink"})
        with pytest.raises(TimeoutError):
            run.tool(reserve, {"item": "paper"}, key="1")
        with pytest.raises(EffectMismatch):
            run.tool(reserve, {"item": "ink"}, key="1")
    paper, again, ink, more, keyed = till.keys
    assert paper == again
    assert len({paper, ink, more, keyed}) == 4


@pytest.mark.parametrize("key", [None, "1"])
def test_a_renamed_tool_does_not_act_again(world: World, key: str | None) -> None:
    till = Till()
    with world.dying("t", start={}) as run:
        run.tool(till.pay, {"amount": 5}, key=key)
    with world.failing("t", EffectMismatch) as run:
        run.tool(till.charge, {"amount": 5}, key=key)
    assert till.paid == [5]


def test_a_changed_key_asks_before_it_acts(world: World) -> None:
    till = Till()
    with world.dying("t", start={}) as run:
        run.tool(till.pay, {"amount": 5}, key="12:00")
    with world.running("t", ends="waiting") as run:
        run.tool(till.pay, {"amount": 5}, key="12:01")
    assert till.paid == [5]
    [question] = world.open().waiting()
    world.open().settle("t", question.effect, Happened("the same"))
    with world.running("t", ends="waiting") as run:
        assert run.tool(till.pay, {"amount": 5}, key="12:01") == "the same"
        run.finish()
    assert till.paid == [5]


def test_arguments_that_changed_ask_before_the_tool_acts(world: World) -> None:
    till = Till()
    with world.dying("t", start={}) as run:
        run.tool(till.pay, {"amount": 5})
    with world.running("t", ends="waiting") as run:
        run.tool(till.pay, {"amount": 6})
    assert till.paid == [5]
    [question] = world.open().waiting()
    world.open().settle("t", question.effect, NotDone())
    with world.running("t", ends="completed") as run:
        assert run.tool(till.pay, {"amount": 6}) == "paid 6"
        assert run.tool(till.pay, {"amount": 5}) == "paid 5"
        run.finish()
    assert till.paid == [5, 6]


def test_a_call_inserted_before_a_recorded_one_gets_its_own_result(world: World) -> None:
    till = Till()
    with world.dying("t", start={}) as run:
        run.tool(till.pay, {"amount": 5})
        run.tool(till.charge, {"amount": 6}, key="6")
    with world.running("t", ends="completed") as run:
        assert run.tool(till.note, {"amount": 1}) == "noted 1"
        assert run.tool(till.pay, {"amount": 5}) == "paid 5"
        assert run.tool(till.charge, {"amount": 7}, key="7") == "charged 7"
        assert run.tool(till.charge, {"amount": 6}, key="6") == "charged 6"
        run.finish()
    assert till.paid == [5, 6, 7]


@pytest.mark.parametrize("ends_by", ["finish", "save", "step"])
def test_a_step_does_not_close_over_a_call_that_was_not_asked_for_again(world: World, ends_by: str) -> None:
    till = Till()

    def end(run: Run) -> None:
        if ends_by == "finish":
            run.finish()
        elif ends_by == "save":
            run.save()
        else:
            steps = run.steps()
            next(steps)
            next(steps)

    with world.dying("t", start={}) as run:
        run.tool(till.pay, {"amount": 5}, key="a")
        run.tool(till.note, {"amount": 6})
    for _ in range(2):
        with world.running("t", ends="waiting") as run:
            run.tool(till.note, {"amount": 6})
            end(run)
    hf = world.open()
    [question] = hf.waiting()
    assert "pay" in str(hf.run_info("t").reason)  # type: ignore[union-attr]
    assert [call["name"] for call in question.payload] == ["pay"]
    assert question.payload[0]["arguments"] == {"amount": 5}
    with world.running("t", ends="waiting") as run:
        end(run)  # now two calls are missing, and the question is another one
    questions = [found.name for found in hf.waiting()]
    assert questions != [question.name]
    with world.running("t", ends="waiting") as run:
        run.tool(till.note, {"amount": 6})
        end(run)
    hf.answer("t", question.name, False)
    with world.running("t", ends="waiting") as run:
        run.tool(till.note, {"amount": 6})
        end(run)
    [again] = hf.waiting()
    assert again.name == f"{question.name} (2)"
    hf.answer("t", again.name, True)
    with world.running("t", ends="completed" if ends_by == "finish" else "idle") as run:
        run.tool(till.note, {"amount": 6})
        end(run)
    assert till.paid == [5]


def test_a_run_does_not_finish_before_a_step_that_acted(world: World) -> None:
    till = Till()
    with world.dying("t", start={}, policy=holdfast.EveryN(5)) as run:
        for step in run.steps():
            run.tool(till.pay, {"amount": step})
            if step == 3:
                world.kill(run)
    with world.running("t", ends="waiting", policy=holdfast.EveryN(5)) as run:
        for step in run.steps():
            run.tool(till.pay, {"amount": step})
            if step == 2:
                run.finish()


def test_an_undone_call_need_not_be_asked_for(world: World) -> None:
    till = Till()
    pay = holdfast.tool(name="pay", undo=till.unpay)(till.pay)
    with world.running("t", start={}) as run:
        run.tool(pay, {"amount": 5})
    world.open(pay).undo("t", to="@0")
    with world.running("t", ends="completed") as run:
        run.finish()


def test_a_child_that_is_not_asked_for_again_keeps_the_step_open(world: World) -> None:
    till = Till()
    with world.dying("t", start={}) as run, run.child("one", start={}) as child:
        child.tool(till.pay, {"amount": 5})
        child.finish()
    with world.running("t", ends="waiting") as run:
        run.finish()


# -- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["sqlite", "directory", "postgres"])
@pytest.mark.parametrize("keys", ["keys", "no keys"])
def test_a_set_in_another_order_pays_each_invoice_once(tmp_path: Path, store: str, keys: str) -> None:
    url = {
        "sqlite": str(tmp_path / "agent.db"),
        "directory": f"dir:{tmp_path / 'agents'}",
        "postgres": reused_address_at(tmp_path) if store == "postgres" else "",
    }[store]
    log = tmp_path / "paid"

    def start(seed: int, dies: int) -> str:
        command = [sys.executable, "-m", "tests.runs.set_agent", url, str(log), str(dies), keys]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": str(seed)}, capture_output=True, text=True, check=False
        )
        assert "Error" not in done.stderr, done.stderr
        return done.stdout.strip()

    start(1, 2)
    for seed in range(2, 40):
        status = start(seed, 0)
        if status == "completed":
            break
        assert keys == "no keys", "keys tell the calls apart"
        with holdfast.open(url) as hf:
            [question] = hf.waiting()
            hf.settle("t", question.effect, NotDone())
    with holdfast.open(url) as hf, hf.run("t") as run:
        assert run.result == {invoice: f"receipt of {invoice}" for invoice in INVOICES}
    assert sorted(log.read_text().split()) == sorted(INVOICES)


def test_equal_calls_of_several_tasks_need_keys_and_others_do_not(world: World) -> None:
    async def weather(city: str) -> str:
        await asyncio.sleep(0.01)
        return f"rain in {city}"

    async def both(run: AsyncRun, *cities: str) -> list[str]:
        return list(await asyncio.gather(*(run.tool(weather, {"city": city}) for city in cities)))

    async def agent() -> None:
        async with world.open().aio.run("t", start={}) as run:
            assert await both(run, "Oslo", "Bergen") == ["rain in Oslo", "rain in Bergen"]
        async with world.open().aio.run("t") as run:
            assert await both(run, "Bergen", "Oslo") == ["rain in Bergen", "rain in Oslo"]
            with pytest.raises(InvalidArgument, match="key="):
                await both(run, "Rome", "Rome")
            with pytest.raises(InvalidArgument, match="key="):
                await asyncio.create_task(both(run, "Bergen", "Bergen"))

    asyncio.run(agent())


def test_equal_calls_of_several_threads_need_keys_and_others_do_not(world: World) -> None:
    till = Till()
    errors: list[BaseException] = []

    def call(run: Run, amount: int) -> None:
        try:
            run.tool(till.pay, {"amount": amount})
        except InvalidArgument as error:
            errors.append(error)

    with world.running("t", start={}) as run:
        for amount in (5, 6, 5):
            thread = threading.Thread(target=call, args=(run, amount))
            thread.start()
            thread.join()
    assert till.paid == [5, 6]
    assert len(errors) == 1


# -- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tool", "model", "stream"])
def test_a_function_gets_copies_of_its_arguments(world: World, kind: str) -> None:
    def agent(run: Run) -> Any:
        items = run.state["items"]
        if kind == "tool":
            run.tool(change, {"items": items})
        elif kind == "model":
            run.model(change, items)
        else:
            list(run.stream(lambda items: iter([change(items)]), items))
        return items

    def change(items: list[int]) -> int:
        items.append(2)
        return len(items)

    with world.dying("t", start={"items": [1]}) as run:
        assert agent(run) == [1]
    with world.running("t") as run:
        assert agent(run) == [1]


def test_the_error_says_what_to_do(world: World) -> None:
    till = Till()
    with world.dying("t", start={}) as run:
        run.tool(till.pay, {"amount": 5}, key="1")
    with pytest.raises(Conflict, match="nothing was called") as refused, world.open().run("t") as run:
        run.tool(till.pay, {"amount": 6}, key="1")
    assert isinstance(refused.value, EffectMismatch)


# -- large arguments --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["model", "tool"])
def test_large_arguments_are_not_encoded_item_by_item(world: World, kind: str) -> None:
    """The codec encodes 1 MB of messages in a few ms. Python functions called for each text would take a second."""
    messages = [{"role": "user", "content": [{"type": "text", "text": f"{n}", "n": n}]} for n in range(1000)]
    frames = 0

    def count(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal frames
        frames += event == "call"

    @holdfast.tool(effect="read")
    def look(messages: Any) -> int:
        return len(messages)

    with world.open(look) as hf, hf.run("t", start={}) as run:
        sys.setprofile(count)
        try:
            answer = run.model(len, messages) if kind == "model" else run.tool(look, {"messages": messages})
        finally:
            sys.setprofile(None)
    assert answer == len(messages)
    assert frames < 3 * len(messages) + 1000, "one for each dict and list: the check that they can be stored"
