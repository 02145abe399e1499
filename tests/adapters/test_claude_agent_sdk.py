"""Claude Agent SDK: the store of sessions, by the suite that the SDK ships and in several processes."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import SessionStore
from claude_agent_sdk.testing import run_session_store_conformance

import holdfast
from holdfast.adapters.claude_agent_sdk import HoldfastSessionStore

KEY: Any = {"project_key": "-home-me/project", "session_id": "0b5f"}


def entries(*numbers: int) -> list[Any]:
    return [{"type": "user", "uuid": f"u{number}", "message": {"content": f"text {number}"}} for number in numbers]


@pytest.mark.parametrize("kind", ["sqlite", "directory", "memory", "handle"])
def test_the_suite_of_the_sdk(tmp_path: Path, kind: str) -> None:
    opened: list[Any] = []
    numbers = itertools.count()

    def make() -> Any:
        number = next(numbers)
        urls = {"sqlite": f"{tmp_path}/{number}.db", "directory": f"{tmp_path}/{number}/", "memory": "memory:"}
        store: Any = holdfast.open(f"{tmp_path}/h{number}.db") if kind == "handle" else urls[kind]
        opened.append(store)
        made = HoldfastSessionStore(store)
        opened.append(made)
        return made

    asyncio.run(run_session_store_conformance(make))
    for each in opened:
        if hasattr(each, "close"):
            each.close()


def test_entries_with_a_uuid_are_stored_once(tmp_path: Path) -> None:
    async def main() -> None:
        first, second = (HoldfastSessionStore(tmp_path / "s.db") for _ in range(2))
        await first.append(KEY, entries(1, 2))
        await first.append(KEY, entries(2, 3))
        await second.append(KEY, entries(1, 3, 4))
        await first.append(KEY, [{"type": "title"}, {"type": "title"}, *entries(4, 5, 5)])
        assert await second.load(KEY) == [*entries(1, 2, 3, 4), {"type": "title"}, {"type": "title"}, *entries(5)]
        first.close()
        second.close()

    asyncio.run(main())


def test_parallel_writers_lose_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        stores = [HoldfastSessionStore(tmp_path / "s.db") for _ in range(3)]
        await asyncio.gather(*[stores[n % 3].append(KEY, entries(n)) for n in range(30)])
        found = await stores[0].load(KEY)
        assert found is not None
        assert sorted(entry["uuid"] for entry in found) == sorted(f"u{n}" for n in range(30))
        for store in stores:
            store.close()

    asyncio.run(main())


def test_names_of_projects_and_sessions_do_not_mix(tmp_path: Path) -> None:
    keys: list[Any] = [
        {"project_key": "a", "session_id": "b/c"},
        {"project_key": "a/b", "session_id": "c"},
        {"project_key": "a", "session_id": "b", "subpath": "c"},
        {"project_key": "a", "session_id": "b%2Fc"},
    ]

    async def main() -> None:
        with holdfast.open(tmp_path / "s.db") as hf:
            store = HoldfastSessionStore(hf)
            for number, key in enumerate(keys):
                await store.append(key, entries(number))
            for number, key in enumerate(keys):
                assert await store.load(key) == entries(number)
            assert sorted(s["session_id"] for s in await store.list_sessions("a")) == ["b%2Fc", "b/c"]

    asyncio.run(main())


def test_the_methods_are_those_of_the_protocol() -> None:
    for name in ("append", "load", "list_sessions", "list_session_summaries", "delete", "list_subkeys"):
        assert getattr(HoldfastSessionStore, name) is not getattr(SessionStore, name)
