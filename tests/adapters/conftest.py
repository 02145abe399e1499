"""Frameworks have environments of their own. A test file is collected where its framework is installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast

FRAMEWORKS = {
    "test_agent_framework.py": "agent_framework",
    "test_google_adk.py": "google.adk",
    "test_openai_agents.py": "agents",
    "test_claude_agent_sdk.py": "claude_agent_sdk",
    "test_pydantic_ai_harness.py": "pydantic_ai_harness",
    "test_strands.py": "strands",
}


def is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of a package that it is part of
        return False


collect_ignore = [file for file, package in FRAMEWORKS.items() if not is_installed(package)]
collect_ignore.append("test_langchain.py")  # it is installed for other tests; `make test-adapters` names the file


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "agent.db", durability="off") as handle:
        yield handle
