"""The program of the kill experiment with the Claude Agent SDK: its own CLI, and a scripted model on a local server.

Each process has its own folder for the CLI's files, as on another machine: a session is resumed from the store alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    ToolAnnotations,
    create_sdk_mcp_server,
    project_key_for_directory,
    query,
    tool,
)

import holdfast
from holdfast.adapters.claude_agent_sdk import HoldfastSessionStore, Journal
from tests.adapters.kill_world import SCRIPTS, Use, World, script_of

SESSION = "11111111-1111-4111-8111-111111111111"
PREFIX = "mcp__shop__"
UNKNOWN = ("interrupted", "A person has been asked")  # in results that do not tell the model what happened


# -- the model --------------------------------------------------------------------------------------------------------


class ScriptedModel:
    """Asks for the calls of a script that it does not know the results of."""

    def __init__(self, world: World, script: str) -> None:
        self.world = world
        self.script = script
        self.seen: list[Any] = []

    def reply(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        if not body.get("tools"):
            return [{"type": "text", "text": "a title"}]
        known = self.known(body["messages"])
        for turn, uses in enumerate(SCRIPTS[self.script]):
            left = [] if isinstance(uses, str) else [use for use in uses if call_of(use.tool, use.args) not in known]
            if left or isinstance(uses, str):
                self.world.reply(self.script, turn)
                return [{"type": "text", "text": uses}] if isinstance(uses, str) else [block_of(use) for use in left]
        raise AssertionError("the script has ended")

    def known(self, messages: list[Any]) -> set[str]:
        blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
        calls = {
            block["id"]: call_of(block["name"].removeprefix(PREFIX), block["input"])
            for block in blocks
            if block["type"] == "tool_use"
        }
        texts = {block["tool_use_id"]: json.dumps(block) for block in blocks if block["type"] == "tool_result"}
        told = {id: text for id, text in texts.items() if not any(word in text for word in UNKNOWN)}
        self.seen[:] = told.values()
        return {calls[id] for id in told}


def call_of(tool: str, arguments: Any) -> str:
    return f"{tool} {json.dumps(arguments, sort_keys=True)}"


def block_of(use: Use) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"{use.id}-{os.getpid()}", "name": PREFIX + use.tool, "input": use.args}


def served(model: ScriptedModel) -> str:
    """The address of a server with the model."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.startswith("/v1/messages?"):
                self.send("text/event-stream", "".join(events(model.reply(body), body["model"])))
            else:
                self.send("application/json", "{}")

        def do_GET(self) -> None:
            self.send("application/json", "{}")

        do_HEAD = do_GET  # noqa: N815 - as the server calls it

        def send(self, kind: str, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def events(content: list[dict[str, Any]], model: str) -> Iterator[str]:
    """A reply as the API streams it."""
    usage = {"input_tokens": 10, "output_tokens": 2}
    message = {"id": "msg", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    yield event("message_start", message={**message, "stop_reason": None, "stop_sequence": None})
    for index, block in enumerate(content):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            partial = json.dumps(block["input"])
            empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": partial}
        yield event("content_block_start", index=index, content_block=empty)
        yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    reason = "tool_use" if content[0]["type"] == "tool_use" else "end_turn"
    yield event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": 2})
    yield event("message_stop")


def event(name: str, **fields: Any) -> str:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n"


# -- the agent --------------------------------------------------------------------------------------------------------


def shop(world: World) -> Any:
    def text_of(value: Any) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": json.dumps(value)}]}

    @tool("look_up", "Look up a price", {"item": str}, annotations=ToolAnnotations(readOnlyHint=True))
    async def look_up(given: dict[str, Any]) -> dict[str, Any]:
        return text_of(world.look_up(given["item"]))

    @tool("buy", "Buy", {"item": str, "amount": int})
    async def buy(given: dict[str, Any]) -> dict[str, Any]:
        return text_of(await anyio.to_thread.run_sync(world.buy, given["item"], given["amount"]))

    return create_sdk_mcp_server("shop", tools=[look_up, buy])


def declarations(world: World, policy: str) -> dict[str, dict[str, Any]]:
    return {f"{PREFIX}{name}": options for name, options in world.declarations(policy).items()}


async def ask(
    world: World, hf: holdfast.Holdfast, model: ScriptedModel, journal: Journal | None, *, is_denied: bool = False
) -> Any:
    """Start the session, or resume it: from the store, or without a journal from the CLI's own files."""
    folder, files = world.folder / "work", world.folder / ("cli" if journal is None else f"cli {os.getpid()}")
    folder.mkdir(exist_ok=True)
    sessions = HoldfastSessionStore(hf)
    has_started: Any = any(files.glob("projects/*/*.jsonl"))
    if journal is not None:
        has_started = await sessions.load({"project_key": project_key_for_directory(folder), "session_id": SESSION})
    options = ClaudeAgentOptions(
        model="scripted",
        cwd=folder,
        setting_sources=[],
        mcp_servers={"shop": shop(world)},
        allowed_tools=[] if is_denied else [f"{PREFIX}look_up", f"{PREFIX}buy"],
        hooks=None if journal is None else journal.hooks(),
        **({} if journal is None else {"session_store": sessions, "session_store_flush": "eager"}),
        env={
            "ANTHROPIC_BASE_URL": served(model),
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CONFIG_DIR": str(files),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "HOME": str(files),
        },
        stderr=lambda line: None,
        **({"resume": SESSION} if has_started else {"session_id": SESSION}),
    )
    result = None
    async for message in query(prompt="continue" if has_started else "buy paper", options=options):
        if isinstance(message, ResultMessage):
            result = message.result
    return result


def run_agent(world: World, hf: holdfast.Holdfast, scenario: str, policy: str) -> tuple[str, Any, Any]:
    model = ScriptedModel(world, script_of(scenario))
    if scenario.endswith("alone"):
        return "completed", asyncio.run(ask(world, hf, model, None)), model.seen
    key = project_key_for_directory(Path(world.folder, "work"))
    with Journal(hf, key, SESSION, declare=declarations(world, policy)) as journal:
        if scenario == "trio":
            result = anyio.run(ask, world, hf, model, journal, backend="trio")
        else:
            result = asyncio.run(ask(world, hf, model, journal, is_denied=scenario == "denied"))
    return journal.status, result, model.seen
