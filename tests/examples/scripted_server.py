"""A scripted provider as an HTTP server on loopback. It counts its requests in a file.

    python tests/examples/scripted_server.py FOLDER [SECONDS]

It implements OpenAI's chat completions and Anthropic's messages, streamed or not, and replaces a paid model: a client
that asks twice gets two answers and is charged twice. It prints its address. Every request is written to
FOLDER/requests.jsonl, and answered SECONDS later. Like the real providers, it refuses a conversation with a tool call
that has no result. It also refuses replies that differ from its script.

While a file FOLDER/hold-N exists, request number N is counted but not answered, or only up to the number of chunks in
that file. This leaves time to kill the client.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    id: str
    name: str
    args: Json


@dataclass(frozen=True)
class Turn:
    """One reply of the model."""

    text: str
    calls: tuple[Call, ...] = ()


def script(turn: int, results: list[Json]) -> Turn:
    """The next action of a shopper: look up the prices, order the items in turn, add up."""
    wanted: list[tuple[str, list[tuple[str, Json]]]] = [
        ("Let me see what they cost.", [("look_up", {"item": "paper"}), ("look_up", {"item": "ink"})]),
        ("The paper first.", [("order", {"item": "paper", "amount": 3})]),
        ("Now the ink.", [("order", {"item": "ink", "amount": 1})]),
    ]
    if turn < len(wanted):
        text, calls = wanted[turn]
        return Turn(text, tuple(Call(f"call_{turn}_{number}", *call) for number, call in enumerate(calls)))
    prices = {result["item"]: result["price"] for result in results if "price" in result}
    ordered = {result["item"]: result["ordered"] for result in results if "ordered" in result}
    return Turn(f"Ordered {ordered}, for {sum(prices[item] * amount for item, amount in ordered.items())} in all.")


class Refused(Exception):
    """A request that a provider would answer with 400."""


# -- what the two providers have in common: a conversation is turns, each with the results of its calls ----------------


def reply_to(turns: list[tuple[Turn, dict[str, str]]]) -> tuple[int, Turn]:
    results: list[Json] = []
    for number, (said, given) in enumerate(turns):
        if said != script(number, results):
            raise Refused(f"turn {number} differs from the model's reply")
        if list(given) != [call.id for call in said.calls]:
            raise Refused(f"turn {number} has calls without a result, or results without a call")
        results += map(json.loads, given.values())
    return len(turns), script(len(turns), results)


def pieces(text: str) -> list[str]:
    """The chunks of a text."""
    return [text[start : start + 12] for start in range(0, len(text), 12)]


class OpenAI:
    path = "/v1/chat/completions"

    def read(self, body: Json) -> list[tuple[Turn, dict[str, str]]]:
        turns: list[tuple[Turn, dict[str, str]]] = []
        for message in body["messages"]:
            if message["role"] == "assistant":
                calls = [
                    Call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
                    for call in message.get("tool_calls") or []
                ]
                turns.append((Turn(message["content"], tuple(calls)), {}))
            elif message["role"] == "tool":
                turns[-1][1][message["tool_call_id"]] = message["content"]
        return turns

    def reply(self, number: int, turn: Turn) -> Json:
        message: Json = {"role": "assistant", "content": turn.text, "refusal": None, "annotations": []}
        if turn.calls:
            message["tool_calls"] = [self._call(call) for call in turn.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._reason(turn)}
        return {**self._head("chat.completion", number), "choices": [choice], "usage": self._usage(number)}

    def stream(self, number: int, turn: Turn) -> Iterator[tuple[str, str]]:
        deltas: list[Json] = [{"role": "assistant", "content": "", "refusal": None}]
        deltas += [{"content": piece} for piece in pieces(turn.text)]
        for index, call in enumerate(turn.calls):
            whole = self._call(call)
            arguments = whole["function"]["arguments"]
            whole["function"]["arguments"] = ""
            deltas.append({"tool_calls": [{"index": index, **whole}]})
            for piece in pieces(arguments):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        choices: list[Json] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
        choices.append({"index": 0, "delta": {}, "finish_reason": self._reason(turn)})
        head = self._head("chat.completion.chunk", number)
        for choice in choices:
            yield "", json.dumps({**head, "choices": [choice], "usage": None})
        yield "", json.dumps({**head, "choices": [], "usage": self._usage(number)})
        yield "", "[DONE]"

    def error(self, problem: str) -> Json:
        return {"error": {"message": problem, "type": "invalid_request_error", "param": "messages", "code": None}}

    def _head(self, kind: str, number: int) -> Json:
        return {"id": f"chatcmpl-{number}", "object": kind, "created": 1_700_000_000, "model": "scripted"}

    def _call(self, call: Call) -> Json:
        function = {"name": call.name, "arguments": json.dumps(call.args)}
        return {"id": call.id, "type": "function", "function": function}

    def _reason(self, turn: Turn) -> str:
        return "tool_calls" if turn.calls else "stop"

    def _usage(self, number: int) -> Json:
        """Each turn reads 100 new tokens, and all earlier ones from a cache; the sum includes these."""
        read = 100 * (number + 1)
        details = {"cached_tokens": 100 * number}
        return {
            "prompt_tokens": read,
            "completion_tokens": 20,
            "total_tokens": read + 20,
            "prompt_tokens_details": details,
        }


class Anthropic:
    path = "/v1/messages"

    def read(self, body: Json) -> list[tuple[Turn, dict[str, str]]]:
        turns: list[tuple[Turn, dict[str, str]]] = []
        for message in body["messages"]:
            blocks = message["content"] if isinstance(message["content"], list) else []
            if message["role"] == "assistant":
                text = "".join(block["text"] for block in blocks if block["type"] == "text")
                calls = [
                    Call(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"
                ]
                turns.append((Turn(text, tuple(calls)), {}))
            for block in blocks:
                if block["type"] == "tool_result":
                    turns[-1][1][block["tool_use_id"]] = block["content"]
        return turns

    def reply(self, number: int, turn: Turn) -> Json:
        usage = {**self._usage(number), "output_tokens": 20}
        return {**self._head(number), "content": self._blocks(turn), "stop_reason": self._reason(turn), "usage": usage}

    def stream(self, number: int, turn: Turn) -> Iterator[tuple[str, str]]:
        for event in self._events(number, turn):
            yield event["type"], json.dumps(event)

    def _events(self, number: int, turn: Turn) -> Iterator[Json]:
        usage = {**self._usage(number), "output_tokens": 1}
        yield {"type": "message_start", "message": {**self._head(number), "content": [], "usage": usage}}
        yield {"type": "ping"}
        for index, block in enumerate(self._blocks(turn)):
            is_text = block["type"] == "text"
            empty = {**block, "text": ""} if is_text else {**block, "input": {}}
            yield {"type": "content_block_start", "index": index, "content_block": empty}
            for piece in pieces(block["text"] if is_text else json.dumps(block["input"])):
                text = {"type": "text_delta", "text": piece}
                delta = text if is_text else {"type": "input_json_delta", "partial_json": piece}
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        stop = {"stop_reason": self._reason(turn), "stop_sequence": None}
        yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 20}}
        yield {"type": "message_stop"}

    def error(self, problem: str) -> Json:
        return {"type": "error", "error": {"type": "invalid_request_error", "message": problem}}

    def _head(self, number: int) -> Json:
        head: Json = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted"}
        return {**head, "stop_reason": None, "stop_sequence": None}

    def _blocks(self, turn: Turn) -> list[Json]:
        calls = [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.args} for call in turn.calls]
        return [{"type": "text", "text": turn.text}, *calls]

    def _reason(self, turn: Turn) -> str:
        return "tool_use" if turn.calls else "end_turn"

    def _usage(self, number: int) -> Json:
        """As above, with cached tokens counted separately."""
        return {"input_tokens": 100, "cache_read_input_tokens": 100 * number, "cache_creation_input_tokens": 0}


# -- HTTP --------------------------------------------------------------------------------------------------------------

PROVIDERS: dict[str, OpenAI | Anthropic] = {provider.path: provider for provider in (OpenAI(), Anthropic())}


class Desk:
    """Counts requests, and delays those that are to be held."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds
        self._lock = threading.Lock()
        self._count = 0

    def count(self, path: str, turn: int, *, streamed: bool) -> int:
        with self._lock:
            self._count += 1
            line = json.dumps({"number": self._count, "path": path, "turn": turn, "stream": streamed})
            file = os.open(self._folder / "requests.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, line.encode() + b"\n")
            finally:
                os.close(file)
            return self._count

    def think(self) -> None:
        time.sleep(self._seconds)

    def hold(self, number: int, sent: int) -> None:
        hold = self._folder / f"hold-{number}"
        while hold.exists() and sent >= int(hold.read_text() or 0):
            time.sleep(0.005)


def handler_of(desk: Desk) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            provider = PROVIDERS[self.path]
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            streamed = bool(body.get("stream"))
            turns = provider.read(body)
            number = desk.count(self.path, len(turns), streamed=streamed)
            desk.think()
            try:
                try:
                    turn, said = reply_to(turns)
                except Refused as refused:
                    self._send(400, "application/json", json.dumps(provider.error(str(refused))))
                    return
                if streamed:
                    self._send(200, "text/event-stream")
                    for sent, (event, data) in enumerate(provider.stream(turn, said)):
                        desk.hold(number, sent)
                        self.wfile.write((f"event: {event}\n" if event else "").encode() + f"data: {data}\n\n".encode())
                else:
                    desk.hold(number, 0)
                    self._send(200, "application/json", json.dumps(provider.reply(turn, said)))
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client was killed; the request still counts

        def _send(self, status: int, kind: str, text: str | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            if text is not None:
                self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *_: Any) -> None:
            """Log nothing: the request is in the file."""

    return Handler


def main(folder: str, seconds: str = "0") -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(Desk(Path(folder), float(seconds))))
    sys.stdout.write(f"http://127.0.0.1:{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
