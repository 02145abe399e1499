"""Export threads as JSON lines in the form of OpenTelemetry's GenAI conventions.

There is one line for each thread, and one for each model call in the journal that led to the checkpoint. Holdfast's own
attributes are named `holdfast.*`; docs/how-to/export.md lists them. No OpenTelemetry package is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from holdfast.codec import msgpack
from holdfast.errors import Damaged, NotFound
from holdfast.exporters.gathering import Gatherer, Told
from holdfast.exporters.otel_messages import talk_of
from holdfast.exporters.otel_request import model_of, outputs_of, response_id, response_model, system_of, tools_of
from holdfast.exporters.target import Exported, Progress, Target, Write, check_selection, put_all, written_to
from holdfast.handle import Holdfast
from holdfast.inspect.calls import usage_of
from holdfast.inspect.data import data_of
from holdfast.inspect.references import find
from holdfast.redaction import Redaction
from holdfast.runs.guards import cache_written
from holdfast.stores.contract_runs import Entry
from holdfast.threads.metadata import moment
from holdfast.types import Problem, Usage

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
THREAD: Final = "holdfast.thread"
MODEL_CALL: Final = "gen_ai.client.inference.operation.details"

_PAGE: Final = 200
_CLASS: Final = re.compile(r"[A-Za-z_][\w.]*")

Attributes = dict[str, Any]


def export_otel(
    hf: Holdfast,
    target: Target,
    *,
    threads: Sequence[str] | None = None,
    prefix: str | None = None,
    redact: Callable[[str], str] | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write threads in the form of OpenTelemetry's GenAI conventions, to a new file or an open one.

    `threads` are names or references ("notes@12"), by default all threads, or those whose names start with `prefix`.
    `redact` is called with every text except names and returns the text to write. NotFound if a named thread does not
    exist, InvalidArgument if the file exists. Unreadable parts are left out and reported.
    """
    check_selection(threads, prefix)
    hf.context.check_open()
    gatherer = Gatherer(hf, Redaction(redact))
    names = list(_names(hf, prefix or "")) if threads is None else list(threads)
    if threads is not None:
        for name in names:
            find(hf, name)
    return written_to(target, _Exporting(gatherer, names, progress).run)


def _names(hf: Holdfast, prefix: str) -> Iterator[str]:
    store, after = hf.context.store, None
    while page := store.threads(prefix=prefix, after=after, limit=_PAGE):
        yield from (row.name for row in page)
        after = page[-1].name


class _Exporting:
    """The state of one export: the threads to write, and what was left out."""

    def __init__(self, gatherer: Gatherer, names: list[str], progress: Progress | None) -> None:
        self._gatherer = gatherer
        self._names = names
        self._progress = progress
        self._left_out: list[Problem] = []

    def run(self, write: Write) -> Exported:
        threads = calls = size = 0
        for done, name in enumerate(self._names):
            if self._progress is not None:
                self._progress("exporting", done, len(self._names))
            try:
                conversation = self._gatherer.gather(name)
                lines = [_line(THREAD, conversation.checkpoint.created_at, _thread(conversation))]
                lines += self._calls(conversation)
            except (Damaged, NotFound) as error:
                self._left_out.append(Problem(name, (), f"the whole thread was left out: {error}"))
                continue
            seqs = (conversation.checkpoint.seq,)
            self._left_out += [Problem(conversation.thread, seqs, why) for why in conversation.lost]
            size += put_all(write, lines)
            threads, calls = threads + 1, calls + len(lines) - 1
        return Exported(threads=threads, checkpoints=threads, entries=calls, bytes=size, left_out=tuple(self._left_out))

    def _calls(self, conversation: Told) -> Iterator[str]:
        try:
            for row in self._gatherer.journal(conversation):
                if row.kind == "model":
                    yield _line(MODEL_CALL, moment(row.begun_at), self._call(conversation, row))
        except Damaged:
            return  # `conversation.lost` already reports that the journal cannot be read

    def _call(self, conversation: Told, row: Entry) -> Attributes:
        reply = None if row.result is None else self._gatherer.redacted(msgpack.decode(row.result))
        outputs, reasons = outputs_of(reply)
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": conversation.thread,
            "gen_ai.agent.name": conversation.agent,
            "gen_ai.response.model": response_model(reply),
            "gen_ai.response.id": response_id(reply),
            "gen_ai.response.finish_reasons": reasons,
            **_usage(usage_of(row)),
            "gen_ai.usage.cache_creation.input_tokens": cache_written(reply) or None,
            "gen_ai.output.messages": outputs,
            "error.type": _error(row.error),
            "holdfast.step": row.step,
            "holdfast.branch": row.branch,
            "holdfast.effect": row.number,
            "holdfast.attempt": row.fence,
            "holdfast.status": row.status,
            "holdfast.seconds": None if row.ended_at is None else max(row.ended_at - row.begun_at, 0) / 1_000_000,
        }
        return attributes


def _thread(conversation: Told) -> Attributes:
    checkpoint = conversation.checkpoint
    talk = talk_of(checkpoint.state, conversation.open_calls)
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": conversation.thread,
        "gen_ai.agent.name": conversation.agent,
        "gen_ai.request.model": model_of(checkpoint.state, checkpoint.metadata),
        "gen_ai.response.finish_reasons": [] if talk is None or talk.finish is None else [talk.finish],
        **_usage(conversation.usage),
        "gen_ai.system_instructions": system_of(checkpoint.state),
        "gen_ai.tool.definitions": tools_of(checkpoint.state),
        "gen_ai.input.messages": [] if talk is None else talk.input,
        "gen_ai.output.messages": [] if talk is None else talk.output,
        "holdfast.checkpoint.id": checkpoint.id,
        "holdfast.checkpoint.seq": checkpoint.seq,
        "holdfast.step": checkpoint.step,
        "holdfast.branch": conversation.branches[conversation.branch - 1].of if conversation.branches else 0,
        "holdfast.head": conversation.is_head,
        "holdfast.status": conversation.standing,
        "holdfast.label": checkpoint.label,
        "holdfast.tags": list(checkpoint.tags),
        "holdfast.in_doubt": [effect.number for effect in conversation.open_calls if effect.status == "in_doubt"],
    }


def _usage(usage: Usage | None) -> Attributes:
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input or None,
        "gen_ai.usage.output_tokens": usage.output or None,
        "gen_ai.usage.cache_read.input_tokens": usage.cached or None,
        "holdfast.usage.total_tokens": usage.total or None,
        "holdfast.usage.cost": usage.cost or None,
        "holdfast.usage.currency": usage.currency if usage.cost else None,
    }


def _error(text: str | None) -> str | None:
    """The class name at the start of an error text; "_OTHER" if there is none."""
    if text is None:
        return None
    kind = text.partition(": ")[0]
    return kind if _CLASS.fullmatch(kind) else "_OTHER"


def _line(name: str, at: datetime, attributes: Attributes) -> str:
    """An event as one line of ASCII. Unknown and empty attributes are left out."""
    told = {key: data_of(value) for key, value in attributes.items() if value is not None and value not in ([], "")}
    event = {"schema_url": SCHEMA_URL, "event_name": name, "timestamp": at.isoformat(), "attributes": told}
    return f"{json.dumps(event, separators=(',', ':'))}\n"
