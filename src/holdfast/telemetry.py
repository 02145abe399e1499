"""OpenTelemetry spans and metrics for a handle. They hold names, numbers and error classes, never content.

`instrument(hf)` adds an observer to a handle. Without it, OpenTelemetry is neither imported nor called.
"""

from __future__ import annotations

import time
from contextvars import Token
from types import TracebackType
from typing import Final, Self

from holdfast.errors import InvalidArgument, NotInstalled
from holdfast.handle import Holdfast
from holdfast.observer import CallKind

try:
    from opentelemetry.context import Context, attach, detach
    from opentelemetry.metrics import Counter, Histogram, MeterProvider, get_meter_provider
    from opentelemetry.trace import (
        NonRecordingSpan,
        Span,
        SpanContext,
        StatusCode,
        Tracer,
        TracerProvider,
        get_current_span,
        get_tracer_provider,
        set_span_in_context,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    from opentelemetry.util.types import AttributeValue
except ModuleNotFoundError as missing:
    raise NotInstalled(
        "holdfast.telemetry needs opentelemetry-api, which is not installed; run: pip install 'holdfast[otel]'"
    ) from missing

_NAME: Final = "holdfast"
_TRACEPARENT: Final = "traceparent"
_OPERATIONS: Final = {"model": "chat", "tool": "execute_tool"}

CONVERSATION: Final = "gen_ai.conversation.id"
OPERATION: Final = "gen_ai.operation.name"
TOOL: Final = "gen_ai.tool.name"
AGENT: Final = "gen_ai.agent.name"
ERROR: Final = "error.type"
STEP: Final = "holdfast.step"
ATTEMPT: Final = "holdfast.attempt"
REPLAYED: Final = "holdfast.replayed"
RESUMED: Final = "holdfast.resumed"


def instrument(
    hf: Holdfast, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> Holdfast:
    """Report what a handle does to OpenTelemetry, and return the handle. None means the global provider.

    Spans: `holdfast.resume` (the claim of a run), `holdfast.model`, `execute_tool NAME`, `holdfast.save` and
    `holdfast.load`. Metrics: `holdfast.save.duration`, `holdfast.save.failures`, `holdfast.calls`. Call it before the
    handle is used. Raises InvalidArgument if the handle already has an observer.
    """
    if not isinstance(hf, Holdfast):
        raise InvalidArgument("instrument() takes a handle from holdfast.open(); for an async handle, pass its .sync")
    if hf.context.observer is not None:
        raise InvalidArgument("this handle is already instrumented; nothing was changed")
    hf.context.observer = Telemetry(tracer_provider or get_tracer_provider(), meter_provider or get_meter_provider())
    return hf


class Telemetry:
    """An `Observer` that reports to OpenTelemetry."""

    def __init__(self, tracers: TracerProvider, meters: MeterProvider) -> None:
        self._tracer = tracers.get_tracer(_NAME)
        meter = meters.get_meter(_NAME)
        self._durations: Histogram = meter.create_histogram(
            "holdfast.save.duration", unit="s", description="Time until a checkpoint is durable"
        )
        self._failures: Counter = meter.create_counter(
            "holdfast.save.failures", unit="{save}", description="Checkpoints that were not stored"
        )
        self._calls: Counter = meter.create_counter(
            "holdfast.calls", unit="{call}", description="Calls of runs, made or replayed"
        )

    @property
    def trace(self) -> str | None:
        return _traceparent(get_current_span())

    def saving(self, thread: str, step: int) -> _Saving:
        span = self._tracer.start_span("holdfast.save", attributes={CONVERSATION: thread, STEP: step})
        return _Saving(span, self._durations, self._failures)

    def loading(self, thread: str) -> _Spanning:
        return _Spanning(self._tracer.start_span("holdfast.load", attributes={CONVERSATION: thread}))

    def running(self, thread: str, agent: str | None) -> _Running:
        return _Running(self._tracer, self._calls, thread, agent)


class _Spanning:
    """An `Observation` that is a span, current inside its block."""

    def __init__(self, span: Span, *, is_current: bool = True) -> None:
        self._span = span
        self._is_current = is_current
        self._token: Token[Context] | None = None

    def update(self, *, step: int | None = None, replayed: bool | None = None) -> None:
        if step is not None:
            self._span.set_attribute(STEP, step)
        if replayed is not None:
            self._span.set_attribute(REPLAYED, replayed)

    def __enter__(self) -> Self:
        if self._is_current:
            self._token = attach(set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            detach(self._token)
        _end(self._span, error)


class _Saving(_Spanning):
    """A span of a save, which also records the metrics."""

    def __init__(self, span: Span, durations: Histogram, failures: Counter) -> None:
        super().__init__(span)
        self._durations = durations
        self._failures = failures
        self._started = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Inside the span, so that the metric can link to it as an exemplar.
        if error is None:
            self._durations.record(time.perf_counter() - self._started)
        else:
            self._failures.add(1, {ERROR: _kind(error)})
        super().__exit__(kind, error, trace)


class _Calling(_Spanning):
    """A span of a model or tool call, which also counts the call."""

    def __init__(self, span: Span, calls: Counter, operation: str, *, is_current: bool) -> None:
        super().__init__(span, is_current=is_current)
        self._calls = calls
        self._operation = operation
        self._replayed: bool | None = None

    def update(self, *, step: int | None = None, replayed: bool | None = None) -> None:
        super().update(step=step, replayed=replayed)
        if replayed is not None:
            self._replayed = replayed

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._replayed is not None:
            self._calls.add(1, {OPERATION: self._operation, REPLAYED: self._replayed})
        super().__exit__(kind, error, trace)


class _Running:
    """A `RunObservation`. Its span ends with the claim, and is the parent of the spans inside the run.

    A span over the whole run would never end, and so never be exported, if the process is killed. Its children would
    have no visible parent.
    """

    def __init__(self, tracer: Tracer, calls: Counter, thread: str, agent: str | None) -> None:
        self._tracer = tracer
        self._calls = calls
        self._thread = thread
        self._attempt = 0
        attributes: dict[str, AttributeValue] = {CONVERSATION: thread, OPERATION: "invoke_agent"}
        if agent is not None:
            attributes[AGENT] = agent
        self._span = tracer.start_span("holdfast.resume", attributes=attributes)
        self._token = attach(set_span_in_context(self._span))

    @property
    def trace(self) -> str | None:
        return _traceparent(self._span)

    def claimed(self, *, before: str | None, resumed: bool, step: int, attempt: int) -> None:
        self._attempt = attempt
        origin = None if before is None else _span_context(before)
        if origin is not None:
            self._span.add_link(origin)
        self._span.set_attributes({RESUMED: resumed, STEP: step, ATTEMPT: attempt})
        self._span.end()

    def refused(self, error: BaseException) -> None:
        detach(self._token)
        # If the caller was cancelled after the claim, before it got the run, `claimed` has ended the span.
        if self._span.is_recording():
            _end(self._span, error)

    def left(self) -> None:
        detach(self._token)

    def calling(self, kind: CallKind, name: str | None, *, step: int, is_stream: bool) -> _Calling:
        operation = _OPERATIONS[kind]
        attributes: dict[str, AttributeValue] = {
            CONVERSATION: self._thread,
            OPERATION: operation,
            STEP: step,
            ATTEMPT: self._attempt,
        }
        if name is not None:
            attributes[TOOL] = name
        called = "holdfast.model" if kind == "model" else f"{operation} {name}" if name else operation
        # A thread that the caller started has no current span; use the run's.
        here = get_current_span().get_span_context().is_valid
        context = None if here else set_span_in_context(NonRecordingSpan(self._span.get_span_context()))
        span = self._tracer.start_span(called, context, attributes=attributes)
        return _Calling(span, self._calls, operation, is_current=not is_stream)


def _end(span: Span, error: BaseException | None) -> None:
    # Only the class of an error is recorded, because its text may hold user data. A BaseException that is not an
    # Exception is not a failure: the run suspends, the worker stops, or the caller is cancelled.
    if isinstance(error, Exception):
        span.set_status(StatusCode.ERROR)
        span.set_attribute(ERROR, _kind(error))
    span.end()


def _kind(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _traceparent(span: Span) -> str | None:
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, set_span_in_context(span))
    return carrier.get(_TRACEPARENT)


def _span_context(traceparent: str) -> SpanContext | None:
    """Parse a traceparent; None if it is invalid."""
    found = TraceContextTextMapPropagator().extract({_TRACEPARENT: traceparent}, Context())
    context = get_current_span(found).get_span_context()
    return context if context.is_valid else None
