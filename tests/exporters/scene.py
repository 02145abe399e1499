"""An invoice that was nearly paid, as the exporters tell of it, at a time that stands still."""

from __future__ import annotations

import base64
import io
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.exporters import Exported

GOLDEN = Path(__file__).parent / "golden"
AT = 1_794_736_800_000_000_000  # 2026-11-15 10:00 UTC
PICTURE = base64.b64encode(b"\x89PNG and so on").decode()
THREAD = "invoice-42"


@holdfast.tool(effect="irreversible", in_doubt="ask")
def pay(amount: int, to: str) -> str:
    raise TimeoutError("the bank did not answer")


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock stands still."""
    monkeypatch.setattr(time, "time_ns", lambda: AT)


def start() -> dict[str, Any]:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
    look = {"type": "tool_use", "id": "toolu_A", "name": "read_invoice", "input": {"page": 1}}
    found = {"type": "tool_result", "tool_use_id": "toolu_A", "content": "Total: 30.00\nDue: 2026-11-30"}
    return {
        "model": "claude-x",
        "system": "You pay invoices.",
        "tools": [{"name": "pay", "description": "Pay.", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Pay this, please."}, image]},
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "I have to look first."}, look],
            },
            {"role": "user", "content": [found]},
        ],
    }


def reply() -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x-1",
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 1200, "output_tokens": 80, "cache_read_input_tokens": 400},
        "content": [
            {"type": "text", "text": "Now I pay."},
            {"type": "tool_use", "id": "toolu_B", "name": "pay", "input": {"amount": 30, "to": "DE02"}},
        ],
    }


def fill(hf: Holdfast) -> None:
    """A run with a call in doubt, of which a fork was made, and which was rewound before."""
    with hf.run(THREAD, start=start(), agent="clerk", policy=holdfast.EveryN(1), tools=[pay]) as run:
        for step in run.steps():
            if step == 2:
                break
            run.state["messages"].append({"role": "assistant", "content": run.model(lambda: "Never mind.")})
    hf.thread(THREAD).rewind("@0")
    hf.thread(THREAD).fork("second-try", at="@0")
    with hf.run(THREAD, policy=holdfast.EveryN(1), tools=[pay]) as run:
        for step in run.steps():
            if step == 2:
                run.tool(pay, {"amount": 30, "to": "DE02"}, key="toolu_B")
                break
            run.state["messages"].append(run.model(reply))


def hidden(text: str) -> str:
    """A redaction."""
    return text.replace("DE02", "[iban]").replace("Pay", "[p]")


def exported(export: Callable[..., Exported], hf: Holdfast, *given: str, **options: Any) -> str:
    """What an export writes, as text."""
    out = io.BytesIO()
    done = export(hf, out, *given, **options)
    assert done.ok
    assert done.bytes == len(out.getvalue())
    return out.getvalue().decode()


def undated(text: str) -> str:
    """Without what is different each time: ids, but for their ends."""
    return re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{4}([0-9a-f]{8})", r"ID-\1", text)


def golden(name: str, text: str) -> None:
    """Hold an output to what was looked at. A missing file is written, to be looked at."""
    path = GOLDEN / name
    if not path.exists():
        path.write_text(undated(text), "utf-8")
        pytest.fail(f"{path} was not there and was written: look at it")
    assert undated(text) == path.read_text("utf-8")
