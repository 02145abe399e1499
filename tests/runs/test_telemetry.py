"""OpenTelemetry: what a handle does can be seen, over crashes too, and never what it works on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import holdfast
from holdfast import Conflict, Holdfast, InvalidArgument, LeaseHeld, NotFound, Run, Unsupported
from holdfast.stores.contract_runs import RunRow
from holdfast.telemetry import instrument
from holdfast.threads.scan import thread_named
from tests.covers import covers
from tests.runs.conftest import Crash, World
from tests.waiting import DEADLINE

CARD = "4111-1111"


@holdfast.tool(effect="read")
def look_up(item: str) -> int:
    return len(item)


@holdfast.tool(effect="irreversible")
def pay(card: str) -> str:
    raise ValueError(f"no such card: {card}")


class Seen:
    """What one or more processes told OpenTelemetry."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])

    def watch(self, hf: Holdfast) -> Holdfast:
        return instrument(hf, tracer_provider=self.tracers, meter_provider=self.meters)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def numbers(self, name: str) -> dict[tuple[Any, ...], Any]:
        """The points of a metric by the values of their attributes, sorted by name."""
        data = self._reader.get_metrics_data()
        metrics = [
            metric
            for resource in (data.resource_metrics if data else [])
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        return {
            tuple(value for _, value in sorted((point.attributes or {}).items())): getattr(point, "value", point)
            for metric in metrics
            if metric.name == name
            for point in metric.data.data_points
        }

    def everything(self) -> str:
        """All that left the process, as text."""
        data = self._reader.get_metrics_data()
        return "\n".join([*(span.to_json() for span in self.spans), data.to_json() if data else ""])

    def close(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    yield made
    made.close()


def trace_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


@contextmanager
def dying(world: World, thread: str, hf: Holdfast, **options: Any) -> Iterator[Run]:
    """See `World.dying`. What was current in a process is gone with it too."""
    with world.dying(thread, hf, **options) as run:
        yield run
    observation = run.request._observation
    assert observation is not None
    observation.left()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


# -- spans ------------------------------------------------------------------------------------------------------------


def test_a_run_and_its_calls_and_saves_are_spans_of_one_trace(world: World, seen: Seen) -> None:
    hf = seen.watch(world.open(look_up))
    with world.running("t", hf, start={}, agent="clerk", ends="completed") as run:
        for _ in run.steps():
            run.model(lambda: "reply")
            run.tool("look_up", {"item": "ink"})
            run.finish("done")
            break
    assert seen.names == [
        "holdfast.save",
        "holdfast.load",
        "holdfast.resume",
        "holdfast.model",
        "execute_tool look_up",
        "holdfast.save",
    ]
    [resume] = seen.named("holdfast.resume")
    assert {trace_of(span) for span in seen.spans} == {trace_of(resume)}
    assert {parent_of(span) for span in seen.spans if span is not resume} == {id_of(resume)}
    assert resume.parent is None
    assert resume.links == ()
    assert all(span.status.is_unset for span in seen.spans)


def test_the_attributes_of_each_span(world: World, seen: Seen) -> None:
    hf = seen.watch(world.open(look_up))
    with world.running("t", hf, start={}, agent="clerk", ends="completed") as run:
        run.model(lambda: "reply")
        run.tool(look_up, {"item": "ink"})
        run.finish("done")
    of_the_run = {"gen_ai.conversation.id": "t", "holdfast.step": 1, "holdfast.attempt": 1}
    [resume], [model] = seen.named("holdfast.resume"), seen.named("holdfast.model")
    [tool] = seen.named("execute_tool look_up")
    first, last = seen.named("holdfast.save")
    assert attributes(resume) == {
        **of_the_run,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "clerk",
        "holdfast.resumed": False,
    }
    assert attributes(model) == {**of_the_run, "gen_ai.operation.name": "chat", "holdfast.replayed": False}
    assert attributes(tool) == {
        **of_the_run,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look_up",
        "holdfast.replayed": False,
    }
    assert attributes(first) == {"gen_ai.conversation.id": "t", "holdfast.step": 0}
    assert attributes(last) == {"gen_ai.conversation.id": "t", "holdfast.step": 1}


@covers("smooth/AgentEvent.CheckpointSaved")
def test_threads_without_runs_are_seen_too(world: World, seen: Seen) -> None:
    thread = seen.watch(world.open()).thread("t")
    saved = thread.save({"n": 1}, step=7)
    thread.latest()
    thread.load(saved.id)
    with pytest.raises(NotFound):
        thread.load("@99")
    assert seen.names == ["holdfast.save", "holdfast.load", "holdfast.load", "holdfast.load"]
    assert [attributes(span).get("holdfast.step") for span in seen.spans] == [7, 7, 7, None]
    assert attributes(seen.spans[-1])["error.type"] == "holdfast.errors.NotFound"


def test_the_spans_of_the_caller_are_around_and_inside(world: World, seen: Seen) -> None:
    hf = seen.watch(world.open())
    tracer = seen.tracers.get_tracer("app")

    def model() -> str:
        with tracer.start_as_current_span("request to the provider"):
            return "reply"

    with tracer.start_as_current_span("web request") as outer:
        with world.running("t", hf, start={}) as run, tracer.start_as_current_span("plan"):
            run.model(model)
        assert trace.get_current_span() is outer
    [resume], [plan], [call] = seen.named("holdfast.resume"), seen.named("plan"), seen.named("holdfast.model")
    [inner], [web] = seen.named("request to the provider"), seen.named("web request")
    assert [parent_of(span) for span in (resume, plan, call, inner)] == [id_of(s) for s in (web, resume, plan, call)]


def test_calls_in_threads_of_the_caller_belong_to_their_run(world: World, seen: Seen) -> None:
    with world.running("t", seen.watch(world.open()), start={}) as run:
        threads = [threading.Thread(target=run.model, args=(lambda: "reply",), kwargs={"key": str(n)}) for n in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    [resume] = seen.named("holdfast.resume")
    assert [parent_of(span) for span in seen.named("holdfast.model")] == [id_of(resume)] * 2


def test_a_child_is_seen_below_its_parent(world: World, seen: Seen) -> None:
    with world.running("t", seen.watch(world.open()), start={}) as run:
        with run.child("part", start={}) as child:
            child.model(lambda: "reply")
        run.model(lambda: "reply")
    above, below = sorted(seen.named("holdfast.resume"), key=lambda span: span.start_time or 0)
    assert attributes(below)["gen_ai.conversation.id"] == child.thread
    assert [parent_of(span) for span in (below, *seen.named("holdfast.model"))] == [
        id_of(above),
        id_of(below),
        id_of(above),
    ]


def test_a_claim_that_is_refused_is_seen_and_leaves_nothing_behind(world: World, seen: Seen) -> None:
    with world.running("t", start={}), pytest.raises(LeaseHeld):
        seen.watch(world.open()).run("t").__enter__()
    [resume] = seen.named("holdfast.resume")
    assert attributes(resume)["error.type"] == "holdfast.errors.LeaseHeld"
    assert not trace.get_current_span().get_span_context().is_valid


# -- over crashes -----------------------------------------------------------------------------------------------------


def test_a_resumed_run_links_to_the_trace_of_the_one_that_crashed(world: World, seen: Seen) -> None:
    with dying(world, "t", seen.watch(world.open()), start={}) as run:
        run.model(lambda: "reply")
        raise Crash
    [crashed] = seen.named("holdfast.resume")
    with world.running("t", seen.watch(world.open())) as run:
        run.model(lambda: "another")
    [_, resumed] = seen.named("holdfast.resume")
    [link] = resumed.links
    assert (link.context.trace_id, link.context.span_id) == (trace_of(crashed), id_of(crashed))
    assert trace_of(resumed) != trace_of(crashed)
    assert attributes(resumed)["holdfast.resumed"] is True
    assert attributes(resumed)["holdfast.attempt"] == 2
    assert [attributes(span)["holdfast.replayed"] for span in seen.named("holdfast.model")] == [False, True]
    assert [trace_of(span) for span in seen.named("holdfast.model")] == [trace_of(crashed), trace_of(resumed)]


def test_what_a_worker_takes_links_to_who_submitted_it(world: World, seen: Seen) -> None:
    hf = seen.watch(world.open())
    with seen.tracers.get_tracer("app").start_as_current_span("web request"):
        hf.submit("h", "t", start={})
    seen.watch(world.open()).worker({"h": lambda run: "done"}).run(until_idle=True)
    [web], [resume] = seen.named("web request"), seen.named("holdfast.resume")
    assert [link.context.span_id for link in resume.links] == [id_of(web)]


def test_a_claim_without_telemetry_keeps_the_trace_before_it(world: World, seen: Seen) -> None:
    with world.running("t", seen.watch(world.open()), start={}):
        pass
    with world.running("t"):
        pass
    with world.running("t", seen.watch(world.open())):
        pass
    first, last = seen.named("holdfast.resume")
    assert [link.context.span_id for link in last.links] == [id_of(first)]


def stored_run(hf: Holdfast) -> RunRow:
    thread = thread_named(hf.context.store, "t")
    row = None if thread is None else hf.context.store.run(thread.position.thread)
    assert row is not None
    return row


@pytest.mark.parametrize("kept", ["nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", ""])
def test_a_trace_that_says_nothing_is_not_linked_to(world: World, seen: Seen, kept: str) -> None:
    hf = world.open()
    with world.running("t", hf, start={}):
        pass
    row = stored_run(hf)
    hf.context.store.claim(row, replace(row, trace=kept, fence=row.fence + 1))
    with world.running("t", seen.watch(world.open())):
        pass
    assert seen.named("holdfast.resume")[0].links == ()


# -- numbers ----------------------------------------------------------------------------------------------------------


def test_executed_and_replayed_calls_are_counted(world: World, seen: Seen) -> None:
    with dying(world, "t", seen.watch(world.open(look_up)), start={}) as run:
        run.model(lambda: "reply")
        run.tool("look_up", {"item": "ink"})
        run.model(lambda: "reply")
        raise Crash
    with world.running("t", seen.watch(world.open(look_up))) as run:
        run.model(lambda: "reply")
    assert seen.numbers("holdfast.calls") == {("chat", False): 2, ("execute_tool", False): 1, ("chat", True): 1}


def test_a_probe_is_no_execution(world: World, seen: Seen) -> None:
    tried: list[str] = []

    @holdfast.tool(effect="irreversible", probe=lambda: holdfast.Happened("found"))
    def act() -> None:
        tried.append("acted")
        raise Crash

    with world.dying("t", world.open(act), start={}) as run:
        run.tool("act")
    with world.running("t", seen.watch(world.open(act))) as run:
        assert run.tool("act") == "found"
    assert seen.numbers("holdfast.calls") == {("execute_tool", True): 1}
    assert tried == ["acted"]


def test_saves_are_measured_and_their_failures_counted(world: World, seen: Seen) -> None:
    hf = seen.watch(world.open())
    late = hf.thread("t")
    hf.thread("t").save({"n": 1})
    hf.thread("t").save({"n": 2})
    late.head()
    assert late.latest() is not None
    hf.thread("t").save({"n": 3})
    with pytest.raises(Conflict):
        late.save({"n": 4})
    assert seen.numbers("holdfast.save.duration")[()].count == 3
    assert seen.numbers("holdfast.save.failures") == {("holdfast.errors.Conflict",): 1}
    failed = seen.named("holdfast.save")[-1]
    assert attributes(failed)["error.type"] == "holdfast.errors.Conflict"


# -- never content ----------------------------------------------------------------------------------------------------


def fail(text: str) -> Any:
    raise RuntimeError(text)


@pytest.mark.parametrize(
    "act",
    [
        lambda run: run.model(fail, f"the card is {CARD}"),
        lambda run: run.model(lambda: {CARD: {CARD}, "odd": object()}),
        lambda run: run.tool("pay", {"card": CARD}),
        lambda run: run.tool(pay, {"card": CARD}, key=CARD),
        lambda run: run.tool(CARD, {"card": CARD}),
        lambda run: run.tool("look_up", {CARD: CARD}),
        lambda run: list(run.stream(fail, CARD)),
        lambda run: run.wait(CARD, {"card": CARD}),
        lambda run: run.finish({CARD: object()}),
        lambda run: run.halt(CARD),
        lambda run: fail(CARD),
    ],
)
def test_nothing_of_what_is_worked_on_leaves_the_process(
    world: World, seen: Seen, act: Callable[[Run], object]
) -> None:
    hf = seen.watch(world.open(look_up, pay))
    for _ in range(2):  # the second time from the journal
        with suppress(Exception), hf.run("t", start={"card": CARD}, turn=CARD) as run:
            run.state["again"] = CARD
            act(run)
    assert len(seen.spans) > 2
    assert CARD not in seen.everything()
    assert all(span.events == () and span.status.description is None for span in seen.spans)


def test_of_an_error_the_class_is_told(world: World, seen: Seen) -> None:
    with world.failing("t", RuntimeError, seen.watch(world.open()), start={}) as run:
        run.model(fail, CARD)
    with world.failing("u", Unsupported, seen.watch(world.open()), start={}) as run:
        run.model(object)
    assert [attributes(span)["error.type"] for span in seen.named("holdfast.model")] == [
        "RuntimeError",
        "holdfast.errors.Unsupported",
    ]
    assert not any(span.status.is_ok or span.status.is_unset for span in seen.named("holdfast.model"))


def test_a_run_that_waits_has_not_failed(world: World, seen: Seen) -> None:
    @holdfast.tool(effect="irreversible", in_doubt="ask")
    def act() -> None:
        raise TimeoutError

    with world.running("t", seen.watch(world.open()), start={}, ends="waiting") as run:
        run.tool(act)
    [tool] = seen.named("execute_tool act")
    assert "error.type" not in attributes(tool)
    assert tool.status.is_unset


# -- streams and async ------------------------------------------------------------------------------------------------


def test_a_stream_is_one_span_and_none_of_what_is_done_between_its_chunks(world: World, seen: Seen) -> None:
    with world.running("t", seen.watch(world.open(look_up)), start={}) as run:
        for chunk in run.stream(lambda: iter(["a", "b"])):
            run.tool("look_up", {"item": chunk}, key=chunk)
        assert list(run.stream(lambda: iter(["c", "d"]), key="left")) == ["c", "d"]
    [resume] = seen.named("holdfast.resume")
    assert [attributes(span)["holdfast.replayed"] for span in seen.named("holdfast.model")] == [False, False]
    assert {parent_of(span) for span in seen.named("execute_tool look_up")} == {id_of(resume)}
    with world.running("t", seen.watch(world.open())) as run:
        assert list(run.stream(lambda: iter(["a", "b"]))) == ["a", "b"]
    assert attributes(seen.named("holdfast.model")[-1])["holdfast.replayed"] is True


def test_an_async_run_is_one_trace_whatever_thread_its_work_is_done_in(world: World, seen: Seen) -> None:
    hf = seen.watch(world.open(look_up))
    tracer = seen.tracers.get_tracer("app")

    async def model() -> str:
        with tracer.start_as_current_span("awaited"):
            return "reply"

    def blocking() -> str:
        with tracer.start_as_current_span("in a thread"):
            return "reply"

    async def chunks() -> AsyncIterator[str]:
        yield "a"

    async def agent() -> None:
        with tracer.start_as_current_span("web request") as outer:
            async with hf.aio.run("t", start={}) as run:
                await asyncio.gather(run.model(model, key="1"), run.model(blocking, key="2"))
                assert [chunk async for chunk in run.stream(chunks, key="3")] == ["a"]
                await run.tool("look_up", {"item": "ink"}, key="4")
                async with run.child("part", start={}) as child:
                    await child.model(blocking)
                await run.finish()
            assert trace.get_current_span() is outer

    asyncio.run(agent())
    [web] = seen.named("web request")
    above, below = sorted(seen.named("holdfast.resume"), key=lambda span: span.start_time or 0)
    assert {trace_of(span) for span in seen.spans} == {trace_of(web)}
    assert parent_of(above) == id_of(web)
    assert {parent_of(span) for span in seen.named("execute_tool look_up")} == {id_of(above)}
    models = seen.named("holdfast.model")
    assert sorted(map(parent_of, models), key=str) == sorted([*[id_of(above)] * 3, id_of(below)], key=str)
    assert {parent_of(span) for span in (*seen.named("awaited"), *seen.named("in a thread"))} < set(map(id_of, models))
    assert parent_of(seen.named("holdfast.save")[-1]) == id_of(above)


def test_the_async_view_of_a_thread_is_seen_where_its_caller_is(world: World, seen: Seen) -> None:
    hf = seen.watch(world.open())

    async def save() -> None:
        with seen.tracers.get_tracer("app").start_as_current_span("web request"):
            await hf.aio.thread("t").save({"n": 1})
            await hf.aio.thread("t").latest()

    asyncio.run(save())
    [web] = seen.named("web request")
    assert {parent_of(span) for span in seen.spans if span is not web} == {id_of(web)}


def test_an_async_caller_that_is_cancelled_leaves_nothing_behind(world: World, seen: Seen) -> None:
    hf = seen.watch(world.open())

    async def agent(asked: asyncio.Event) -> None:
        async def model() -> None:
            asked.set()
            await asyncio.Event().wait()

        async with hf.aio.run("t", start={}) as run:
            await run.model(model)

    async def cancel() -> None:
        asked = asyncio.Event()
        task = asyncio.create_task(agent(asked))
        await asyncio.wait_for(asked.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert all(span.status.is_unset for span in seen.spans)


# -- switching it on --------------------------------------------------------------------------------------------------


def test_what_cannot_be_instrumented(world: World, seen: Seen) -> None:
    hf = seen.watch(world.open())
    with pytest.raises(InvalidArgument, match="already"):
        seen.watch(hf)
    for wrong in (None, hf.aio, hf.thread("t")):
        with pytest.raises(InvalidArgument, match="handle"):
            instrument(wrong)  # type: ignore[arg-type]  # what a caller without a type checker may do


def test_without_a_provider_nothing_is_told_and_nothing_fails(world: World) -> None:
    hf = instrument(world.open(look_up))
    with world.running("t", hf, start={}, ends="completed") as run:
        run.tool("look_up", {"item": "ink"})
        run.finish(run.model(lambda: "reply"))
    row = stored_run(hf)
    assert row.trace is None


def test_opentelemetry_is_not_imported_by_those_who_do_not_use_it() -> None:
    code = (
        "import sys, holdfast\n"
        "with holdfast.open('memory:') as hf, hf.run('t', start={}) as run: run.finish(run.model(dict))\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE)


def test_without_the_package_the_extra_is_named() -> None:
    code = (
        "import sys, holdfast; sys.modules['opentelemetry'] = None; sys.modules['opentelemetry.context'] = None\n"
        "try:\n    import holdfast.telemetry\n"
        "except holdfast.errors.NotInstalled as error:\n    assert 'holdfast[otel]' in str(error), error\n"
        "else:\n    raise SystemExit('no error')\n"
        "with holdfast.open('memory:') as hf: hf.thread('t').save({})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE)
