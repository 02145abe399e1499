"""A scripted model as an HTTP server on loopback. It counts its requests in a file.

    python -m holdfast.demo.scripted_model FOLDER [SECONDS]

It replaces a paid model: a client that asks twice gets two answers and is charged twice. It prints its port. Every
request is written to FOLDER/requests.jsonl, and answered SECONDS later.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def reply_to(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The next action of a bookkeeper: read an invoice and its delivery note, then pay it or dispute it."""
    seen: dict[str, dict[str, Any]] = {}
    for message in messages:
        content = message["content"]
        if message["role"] == "tool" and isinstance(content, dict):
            seen.setdefault(content["invoice"], {}).update(content)
    for invoice in messages[0]["invoices"]:
        known = seen.get(invoice, {})
        if "ordered" not in known:
            which = {"invoice": invoice}
            return calls(f"Let me read {invoice}.", ("read_invoice", which), ("read_delivery", which))
        if known["ordered"] != known["delivered"]:
            if "disputed" not in known:
                reason = f"ordered {known['ordered']} but got {known['delivered']}"
                return calls(f"{invoice} is wrong.", ("dispute", {"invoice": invoice, "reason": reason}))
        elif "paid" not in known:
            amount = known["ordered"] * known["price"]
            act = {"invoice": invoice, "amount": amount}
            return calls(f"{invoice} is right.", ("reserve", act), ("pay", {**act, "to": known["supplier"]}))
    paid = sum(known.get("paid", 0) for known in seen.values())
    disputed = sorted(invoice for invoice, known in seen.items() if "disputed" in known)
    return {"role": "assistant", "content": {"paid": paid, "disputed": disputed}, "calls": []}


def calls(text: str, *wanted: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A reply that calls tools. The ids start again in each reply, as with some models."""
    tools = [{"id": f"call_{number}", "name": name, "args": args} for number, (name, args) in enumerate(wanted)]
    return {"role": "assistant", "content": text, "calls": tools}


def handler_of(log: Path, seconds: float) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
            turn = sum(message["role"] == "assistant" for message in messages) + 1
            note(log, turn)
            time.sleep(seconds)  # the model thinks
            body = json.dumps(reply_to(messages)).encode()
            try:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client was killed; the request still counts

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
            """Log nothing: the request is in the file."""

    return Handler


def note(log: Path, turn: int) -> None:
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, json.dumps({"turn": turn}).encode() + b"\n")
    finally:
        os.close(file)


def main(folder: str, seconds: str = "0.05") -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(Path(folder) / "requests.jsonl", float(seconds)))
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
