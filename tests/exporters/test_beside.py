"""What a state keeps beside its messages: the instructions are told, whichever form they have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.exporters import Exported, export_html, export_markdown, export_otel
from holdfast.states import AgentState, Conversation, Message, Prompt
from tests.exporters.scene import exported

Export = Callable[..., Exported]

HELLO = {"role": "user", "content": "Hello"}


@pytest.fixture
def memory() -> Iterator[Holdfast]:
    with holdfast.open("memory:") as hf:
        yield hf


def instructions(hf: Holdfast) -> list[str]:
    """Those of thread "t", in OpenTelemetry's form."""
    line = json.loads(exported(export_otel, hf, threads=["t"]))
    return [part["content"] for part in line["attributes"].get("gen_ai.system_instructions", [])]


@pytest.mark.parametrize("kind", [Conversation, AgentState])
@pytest.mark.parametrize(
    ("prompt", "told"),
    [("You are kind.", ["You are kind."]), (Prompt("You are kind. ", "Now."), ["You are kind. ", "Now."]), ("", [])],
)
def test_the_prompt_of_a_ready_made_state_is_its_instructions(
    memory: Holdfast, kind: type[Conversation], prompt: str | Prompt, told: list[str]
) -> None:
    memory.thread("t", type=kind).save(kind(prompt=prompt, messages=[Message.user("Hello")]))
    assert instructions(memory) == told


class Loan(AgentState):
    reader: str = ""


def test_so_is_that_of_a_state_made_from_one(memory: Holdfast) -> None:
    memory.thread("t", type=Loan).save(Loan(prompt="You lend books.", messages=[Message.user("May I?")], reader="ann"))
    assert instructions(memory) == ["You lend books."]


@pytest.mark.parametrize("export", [export_markdown, export_html], ids=["markdown", "html"])
def test_it_stands_in_a_transcript_ahead_of_the_messages(memory: Holdfast, export: Export) -> None:
    talk = Conversation(prompt="You are a librarian.", messages=[Message.user("Hello")])
    memory.thread("t", type=Conversation).save(talk)
    text = exported(export, memory, "t")
    assert text.index("Instructions") < text.index("You are a librarian.") < text.index("Hello")


@pytest.mark.parametrize(
    "beside",
    [
        {"prompt": "the last question"},
        {"prompt": "the last question", "budget": 10.5, "id": "x"},
        {"prompt": "the last question", "budget": 10},
        {"prompt": {"text": "the last question"}, "budget": 10, "id": "x"},
    ],
)
def test_a_prompt_in_a_state_of_another_shape_may_be_anything(memory: Holdfast, beside: dict[str, Any]) -> None:
    memory.thread("t").save({"messages": [HELLO], **beside})
    assert instructions(memory) == []
