"""A message of each kind that LangChain has, with something in every field."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

SERDE = JsonPlusSerializer(allowed_msgpack_modules=None)

USAGE: Any = {
    "input_tokens": 1,
    "output_tokens": 2,
    "total_tokens": 3,
    "input_token_details": {"cache_read": 0, "audio": 1},
}
BLOCKS: list[Any] = [
    {"type": "text", "text": "look", "annotations": [{"type": "citation", "start_index": 0}]},
    {"type": "image", "source": {"data": "aGk=", "sizes": [1, 2, [3, 0.0]]}},
    "a text",
]
CALLS: list[Any] = [
    {
        "name": "search",
        "args": {"query": {"words": ["a", "b"], "limit": 1, "boost": 0.0}},
        "id": "c1",
        "type": "tool_call",
    },
    {"name": "add", "args": {}, "id": None, "type": "tool_call"},
]
SAID: dict[str, Any] = {
    "additional_kwargs": {"refusal": None, "flags": [True, 1, 1.0], "nested": {"deep": {"er": [0.0, "x"]}}},
    "response_metadata": {"model": "m", "logprobs": [{"token": "a", "logprob": -0.5}], "empty": {}, "none": []},
}

KINDS: list[BaseMessage] = [
    HumanMessage("hello"),
    HumanMessage(copy.deepcopy(BLOCKS), id="h1", name="bob", **copy.deepcopy(SAID)),
    HumanMessageChunk(content="hel", id="hc"),
    SystemMessage("be kind", id="s1", **copy.deepcopy(SAID)),
    SystemMessageChunk(content="be"),
    AIMessage("", id="a0"),
    AIMessage("answer", id="a1", tool_calls=CALLS, usage_metadata=USAGE, **copy.deepcopy(SAID)),
    AIMessage(
        copy.deepcopy(BLOCKS),
        id="a2",
        invalid_tool_calls=[{"name": "x", "args": "{", "id": "c9", "error": "bad", "type": "invalid_tool_call"}],
    ),
    AIMessageChunk(
        content="ans",
        id="ac",
        usage_metadata=USAGE,
        tool_call_chunks=[{"name": "n", "args": '{"a": 1}', "id": "c", "index": 0, "type": "tool_call_chunk"}],
    ),
    ToolMessage("3", tool_call_id="c1", id="t1", artifact={"rows": [[1, 2.5], [3, None]]}, status="error"),
    ToolMessage(copy.deepcopy(BLOCKS), tool_call_id="c2"),
    ToolMessageChunk(content="3", tool_call_id="c1"),
    FunctionMessage(content="4", name="f", id="f1"),
    FunctionMessageChunk(content="4", name="f"),
    ChatMessage(content="said", role="critic", id="x1", **copy.deepcopy(SAID)),
    ChatMessageChunk(content="sa", role="critic"),
    RemoveMessage(id="gone"),
    # Fields that the class does not know, and one that was set to its default.
    HumanMessage("more", id="e1", mood={"level": [1, {"calm": True}]}, score=0.0, tags=["a"]),
    AIMessage("blank", name=None, example=False),
]
NAMES = [f"{type(one).__name__}-{at}" for at, one in enumerate(KINDS)]


def stored(message: BaseMessage) -> Any:
    """What would be stored of a message: the truth that a snapshot is measured by. None if it would be refused."""
    try:
        return SERDE.dumps_typed(message)
    except (TypeError, ValueError, AttributeError):
        return None


class Place:
    """Somewhere within a message: the container, and the key of a member."""

    def __init__(self, container: Any, key: Any) -> None:
        self.container = container
        self.key = key

    @property
    def value(self) -> Any:
        return self.container[self.key]

    def put(self, value: Any) -> None:
        self.container[self.key] = value


def places(message: BaseMessage) -> list[Place]:
    found = [*_places(message.__dict__)]
    return [*found, *_places(message.__pydantic_extra__ or {})]


def _places(container: Any) -> Iterator[Place]:
    keys = [*container] if isinstance(container, dict) else range(len(container))
    for key in keys:
        yield Place(container, key)
        if isinstance(container[key], dict | list):
            yield from _places(container[key])
