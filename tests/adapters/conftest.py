"""Frameworks have environments of their own. A test file is collected where its framework is installed."""

from __future__ import annotations

from importlib.util import find_spec

FRAMEWORKS = {
    "test_agent_framework.py": "agent_framework",
    "test_openai_agents.py": "agents",
    "test_claude_agent_sdk.py": "claude_agent_sdk",
    "test_strands.py": "strands",
}

collect_ignore = [file for file, package in FRAMEWORKS.items() if find_spec(package) is None]
