"""The work of one agent: a conversation that grows by two messages per step, and a few small fields that change."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from bench.text import Writer

State: TypeAlias = dict[str, Any]

_TOOLS = ("read_file", "search", "run_tests", "query", "fetch_page", "edit_file")


def compact(value: Any) -> bytes:
    """Compact JSON, the reference for all sizes."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class Agent:
    """Generates the states of one agent, step by step. Two agents with the same seed generate the same states.

    `state` is changed in place, as agents do. `changed` is the compact JSON of what the last step added and changed.
    """

    def __init__(self, seed: int = 1, messages: int = 0) -> None:
        self._writer = Writer(seed)
        self.state: State = {
            "agent": "researcher",
            "task": self._writer.prose(400),
            "messages": [],
            "plan": [self._writer.sentence() for _ in range(5)],
            "step": 0,
            "phase": "reading",
            "usage": {"input": 0, "output": 0, "cost": 0.0},
            "last_tool": None,
            "updated_at": self._writer.moment(),
        }
        self.changed = b""
        for _ in range(messages // 2):
            self.step()

    def step(self) -> State:
        """One step: a reply that calls a tool, and the tool's result. About 1.8 kB each."""
        writer, state = self._writer, self.state
        writer.turn()
        tool, call = _TOOLS[writer.number(0, len(_TOOLS) - 1)], f"call_{writer.hex(24)}"
        given = {"path": writer.identifier(), "limit": writer.number(5, 99)}
        added = [
            {
                "role": "assistant",
                "id": f"msg_{writer.hex(24)}",
                "content": writer.reply(writer.number(400, 2600)),
                "tool_calls": [{"id": call, "name": tool, "args": given}],
            },
            {"role": "tool", "tool_call_id": call, "name": tool, "content": writer.output(writer.number(400, 2600))},
        ]
        usage = state["usage"]
        small = {
            "step": state["step"] + 1,
            "phase": ("reading", "writing", "checking")[writer.number(0, 2)],
            "usage": {
                "input": usage["input"] + writer.number(900, 9000),
                "output": usage["output"] + writer.number(100, 900),
                "cost": round(usage["cost"] + writer.number(1, 90) / 1000, 3),
            },
            "last_tool": tool,
            "updated_at": writer.moment(),
        }
        state["messages"] += added
        state.update(small)
        self.changed = compact({"messages": added, **small})
        return state
