"""Messages as a chat: every framework's shape, calls beside their results, content that is never interpreted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.inspect import Chat, chat_of, data_of
from holdfast.types import Effect
from tests.cases import for_each

Talk = list[tuple[str, str, list[tuple[str, Any, str | None]]]]


def talk(chat: Chat | None) -> Talk:
    """Each message as role, text, and its calls as name, arguments, result."""
    assert chat is not None
    return [
        (
            message.role,
            " ".join(part.text if part.kind != "data" else json.dumps(data_of(part.data)) for part in message.parts),
            [
                (
                    call.name,
                    call.arguments,
                    None
                    if call.result is None
                    else " ".join(part.text if part.kind != "data" else json.dumps(part.data) for part in call.result),
                )
                for call in message.calls
            ],
        )
        for message in chat.messages
    ]


EXPECTED: Talk = [
    ("user", "How much is ink?", []),
    ("assistant", "Let me see.", [("look_up", {"item": "ink"}, "11")]),
    ("assistant", "Eleven.", []),
]

OPENAI = [
    {"role": "user", "content": "How much is ink?"},
    {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"item": "ink"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "11"},
    {"role": "assistant", "content": [{"type": "text", "text": "Eleven."}]},
]
RESPONSES = [
    {"role": "user", "content": [{"type": "input_text", "text": "How much is ink?"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
    {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": '{"item": "ink"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "11"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Eleven."}]},
]
ANTHROPIC = [
    {"role": "user", "content": "How much is ink?"},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"item": "ink"}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "11"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "Eleven."}]},
]
PLAIN = [
    {"role": "user", "content": "How much is ink?"},
    {
        "role": "assistant",
        "content": "Let me see.",
        "calls": [{"id": "c1", "name": "look_up", "args": {"item": "ink"}}],
    },
    {"role": "tool", "id": "c1", "content": "11"},
    {"role": "assistant", "content": "Eleven."},
]
PYDANTIC_AI = [
    {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "How much is ink?"}]},
    {
        "kind": "response",
        "parts": [
            {"part_kind": "text", "content": "Let me see."},
            {"part_kind": "tool-call", "tool_name": "look_up", "args": '{"item": "ink"}', "tool_call_id": "c1"},
        ],
    },
    {
        "kind": "request",
        "parts": [{"part_kind": "tool-return", "tool_name": "look_up", "content": "11", "tool_call_id": "c1"}],
    },
    {"kind": "response", "parts": [{"part_kind": "text", "content": "Eleven."}]},
]
GOOGLE = [
    {"role": "user", "parts": [{"text": "How much is ink?"}]},
    {
        "role": "model",
        "parts": [{"text": "Let me see."}, {"functionCall": {"name": "look_up", "args": {"item": "ink"}}}],
    },
    {"role": "user", "parts": [{"functionResponse": {"name": "look_up", "response": 11}}]},
    {"role": "model", "parts": [{"text": "Eleven."}]},
]


def node(kind: str, module: str, **fields: Any) -> dict[str, Any]:
    return {"$ext": 5, "payload": [f"langchain_core.messages.{module}", kind, {"id": None, **fields}, "model_validate"]}


LANGGRAPH = {
    "messages": [
        node("HumanMessage", "human", id="m1", type="human", content="How much is ink?"),
        node(
            "AIMessage",
            "ai",
            id="m2",
            type="ai",
            content="Let me see.",
            tool_calls=[{"id": "c1", "name": "look_up", "args": {"item": "ink"}, "type": "tool_call"}],
        ),
        node("ToolMessage", "tool", id="m3", type="tool", content="11", tool_call_id="c1"),
        node("AIMessage", "ai", id="m4", type="ai", content="Eleven.", tool_calls=[]),
    ],
    "$checkpoint": {},
}


@pytest.mark.parametrize(
    "messages",
    [OPENAI, ANTHROPIC, PLAIN, PYDANTIC_AI, GOOGLE],
    ids=["openai", "anthropic", "plain", "pydantic", "google"],
)
def test_every_framework_says_the_same(messages: list[Any]) -> None:
    assert talk(chat_of({"messages": messages, "n": 1})) == EXPECTED
    assert talk(chat_of({"n": 1, "history": messages})) == EXPECTED
    assert talk(chat_of(messages)) == EXPECTED


def test_responses_have_calls_as_items_of_their_own() -> None:
    assert talk(chat_of(RESPONSES)) == [
        EXPECTED[0],
        ("assistant", "Let me see.", []),
        ("assistant", "", [("look_up", {"item": "ink"}, "11")]),
        EXPECTED[2],
    ]


def test_what_langgraph_stored() -> None:
    chat = chat_of(LANGGRAPH)
    assert talk(chat) == EXPECTED
    assert chat is not None
    assert [message.id for message in chat.messages] == ["m1", "m2", "m4"]
    assert chat.path == "$.messages"
    apart = {"$values": {"messages": LANGGRAPH["messages"]}, "$checkpoint": {}}
    assert talk(chat_of(apart)) == EXPECTED


def test_ids_that_begin_anew_at_every_turn() -> None:
    turns = [
        message
        for number in (1, 2)
        for message in (
            {"role": "assistant", "content": "", "calls": [{"id": "call_0", "name": "look_up", "args": number}]},
            {"role": "tool", "id": "call_0", "content": f"result {number}"},
        )
    ]
    assert [calls for _, _, calls in talk(chat_of(turns))] == [
        [("look_up", 1, "result 1")],
        [("look_up", 2, "result 2")],
    ]


def test_a_result_is_of_the_last_call_of_its_id() -> None:
    asked = [
        {"role": "assistant", "content": "", "calls": [{"id": "call_0", "name": "look_up", "args": number}]}
        for number in (1, 2)
    ]
    assert [calls for _, _, calls in talk(chat_of([*asked, {"role": "tool", "id": "call_0", "content": "of 2"}]))] == [
        [("look_up", 1, None)],
        [("look_up", 2, "of 2")],
    ]


def test_a_call_without_a_result_shows_what_the_journal_says() -> None:
    messages = [PLAIN[0], PLAIN[1]]
    for status, shown in (("in_doubt", "in doubt"), ("started", "under way"), ("failed", "failed")):
        effect = _effect(status, "look_up/c1")
        chat = chat_of({"messages": messages}, journal=[_effect("done", "other/c1"), effect])
        assert chat is not None
        assert chat.messages[-1].calls[0].status == shown
        assert chat.messages[-1].calls[0].result is None


def _effect(status: str, key: str) -> Effect:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    given: dict[str, Any] = {
        "number": 1,
        "branch": 0,
        "step": 1,
        "key": key,
        "name": "look_up",
        "effect": "irreversible",
    }
    return Effect(**given, status=status, started_at=at, ended_at=None, arguments=None, result=None, error=None)


def test_a_result_that_nobody_asked_for_is_a_message() -> None:
    assert talk(chat_of([OPENAI[2], OPENAI[0]])) == [("tool", "11", []), EXPECTED[0]]


def test_errors_and_thoughts_and_pictures() -> None:
    chat = chat_of(
        [
            {
                "role": "user",
                "content": [{"type": "image", "source": {"data": "…"}}, {"type": "text", "text": "this?"}],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "tool_use", "id": "1", "name": "look", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "1", "is_error": True, "content": "no"}],
            },
        ]
    )
    assert chat is not None
    assert [part.kind for part in chat.messages[0].parts] == ["data", "text"]
    assert [(part.kind, part.text) for part in chat.messages[1].parts] == [("thought", "hm")]
    assert chat.messages[1].calls[0].is_error


@for_each(
    "odd",
    [
        None,
        7,
        "text",
        b"bytes",
        [],
        {},
        {"role": 3},
        {"role": "user"},
        {"role": "assistant", "content": {"deep": [1]}},
        {"role": "assistant", "tool_calls": "none"},
        {"role": "assistant", "tool_calls": [None, 3, {"function": {}}, {"function": "x"}, {"name": 3}]},
        {"role": "tool", "content": None},
        {"$ext": 5, "payload": []},
        {"$ext": 5, "payload": ["m", "C", None]},
        {"$ext": 5, "payload": ["m", "C", {"content": 3}]},
        {"type": "function_call"},
        {"kind": "request", "parts": None},
        {"role": "assistant", "content": [[], None, {"type": []}, {"type": "tool_use"}, {"functionCall": 3}]},
    ],
)
def test_nothing_makes_it_fail(odd: Any) -> None:
    chat = chat_of({"messages": [odd, {"role": "user", "content": "hi"}, odd]})
    assert chat is not None
    assert ("user", "hi", []) in talk(chat)


@for_each("state", [None, 3, "text", [], {}, [1, 2], {"n": 1}, {"items": [{"a": 1}]}])
def test_a_state_without_messages(state: Any) -> None:
    assert chat_of(state) is None


def test_a_page_of_it() -> None:
    messages = [{"role": "user", "content": str(number)} for number in range(10)]
    for start, limit, indices in ((-3, None, [7, 8, 9]), (2, 3, [2, 3, 4]), (99, None, []), (-99, 1, [0])):
        chat = chat_of(messages, start=start, limit=limit)
        assert chat is not None
        assert [message.index for message in chat.messages] == indices
        assert chat.total == 10


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_what_a_message_says_it_thought_is_shown(field: str) -> None:
    chat = chat_of({"messages": [{"role": "assistant", "content": "Four.", field: "Two and two."}]})
    assert chat is not None
    assert [(part.kind, part.text) for part in chat.messages[0].parts] == [
        ("thought", "Two and two."),
        ("text", "Four."),
    ]


def test_a_transcript_of_claude_is_its_messages() -> None:
    def entry(role: str, content: Any) -> dict[str, Any]:
        return {"type": role, "uuid": "u", "parentUuid": None, "message": {"role": role, "content": content}}

    use = {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"item": "ink"}}
    entries = [
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "s", "content": "How much is ink?"},
        entry("user", "How much is ink?"),
        entry("assistant", [{"type": "text", "text": "Let me see."}, use]),
        entry("user", [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "11"}]}]),
        entry("assistant", [{"type": "text", "text": "Eleven."}]),
        {"type": "cost-state", "sessionId": "s", "totalCostUSD": 0.1},
    ]
    assert talk(chat_of({"entries": entries})) == EXPECTED


def test_the_keys_of_adapters_have_the_ids_of_calls() -> None:
    calls: list[Any] = [{"id": id, "name": "buy", "args": {}} for id in ("c1", "c2", "c3")]
    at = datetime(2026, 1, 1, tzinfo=UTC)
    keys = ["buy/2:c1", "buy/delegate:d1/c2", "buy/c3 0af1"]  # Pydantic AI, a sub-agent, Claude
    fields: Any = {"branch": 0, "step": 1, "name": "buy", "effect": "irreversible", "status": "in_doubt"}
    journal = [
        Effect(number=n, key=key, started_at=at, ended_at=None, arguments={}, result=None, error=None, **fields)
        for n, key in enumerate(keys)
    ]
    chat = chat_of({"messages": [{"role": "assistant", "tool_calls": calls}]}, journal=journal)
    assert chat is not None
    assert [call.status for call in chat.messages[0].calls] == ["in doubt"] * 3


STRANDS = [
    {"role": "user", "content": [{"text": "How much is ink?"}]},
    {
        "role": "assistant",
        "content": [
            {"text": "Let me see."},
            {"toolUse": {"toolUseId": "c1", "name": "look_up", "input": {"item": "ink"}}},
        ],
    },
    {
        "role": "user",
        "content": [{"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"text": "11"}]}}],
    },
    {"role": "assistant", "content": [{"text": "Eleven."}]},
]
STRANDS_SESSION = [{"message": message, "message_id": n, "redact_message": None} for n, message in enumerate(STRANDS)]
AGENT_FRAMEWORK = [
    {"type": "message", "role": "user", "contents": [{"type": "text", "text": "How much is ink?"}]},
    {
        "type": "message",
        "role": "assistant",
        "contents": [
            {"type": "text", "text": "Let me see."},
            {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": '{"item": "ink"}'},
        ],
    },
    {"type": "message", "role": "tool", "contents": [{"type": "function_result", "call_id": "c1", "result": "11"}]},
    {"type": "message", "role": "assistant", "contents": [{"type": "text", "text": "Eleven."}]},
]
LANGCHAIN = [
    {"type": "human", "data": {"content": "How much is ink?", "type": "human", "id": "h1"}},
    {
        "type": "ai",
        "data": {
            "content": "Let me see.",
            "type": "ai",
            "tool_calls": [{"name": "look_up", "args": {"item": "ink"}, "id": "c1", "type": "tool_call"}],
        },
    },
    {"type": "tool", "data": {"content": "11", "type": "tool", "name": "look_up", "tool_call_id": "c1"}},
    {"type": "ai", "data": {"content": "Eleven.", "type": "ai", "tool_calls": []}},
]


@for_each("messages", [STRANDS, STRANDS_SESSION, AGENT_FRAMEWORK, LANGCHAIN])
def test_what_the_adapters_of_frameworks_store(messages: list[Any]) -> None:
    assert talk(chat_of({"messages": messages})) == EXPECTED


def test_events_of_adk_have_the_names_of_agents() -> None:
    call = {"function_call": {"id": "c1", "name": "look_up", "args": {"item": "ink"}}}
    response = {"function_response": {"id": "c1", "name": "look_up", "response": {"result": 11}}}
    events = [
        {"author": "user", "content": {"role": "user", "parts": [{"text": "How much is ink?"}]}, "id": "e1"},
        {"author": "clerk", "content": {"role": "model", "parts": [{"text": "Let me see."}, call]}, "id": "e2"},
        {"author": "clerk", "content": {"role": "user", "parts": [response]}, "id": "e3"},
        {"author": "writer", "content": {"role": "model", "parts": [{"text": "Eleven."}]}, "id": "e4"},
    ]
    chat = chat_of({"messages": events})
    assert talk(chat) == [
        EXPECTED[0],
        (*EXPECTED[1][:2], [("look_up", {"item": "ink"}, '{"result": 11}')]),
        EXPECTED[2],
    ]
    assert chat is not None
    assert [message.name for message in chat.messages] == ["user", "clerk", "writer"]
