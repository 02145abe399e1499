"""Strands Agents: the kill experiment, sessions and storage, and what the plugin adds to an agent."""

from __future__ import annotations

import json
from typing import Any

from tests.adapters.kill_contract import KillContract


class TestKill(KillContract):
    PROGRAM = "tests.adapters.strands_agent"

    def told(self, seen: Any) -> Any:
        return [json.loads(each) for each in seen]
