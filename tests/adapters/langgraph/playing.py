"""Plays a script on a graph, by its sync or async methods, and tells what came of it in a form that can be compared."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, Literal

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import StateSnapshot

Durability = Literal["sync", "async", "exit"]

# Ids are drawn at random and times pass: the first id that is met is #0 in both histories, the next #1.
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")


class Player:
    """One graph on one saver, and everything it answered."""

    def __init__(self, graph: Any, *, is_async: bool, durability: Durability, thread: str = "t") -> None:
        self.graph = graph
        self.is_async = is_async
        self.durability = durability
        self.config: dict[str, Any] = {"configurable": {"thread_id": thread}}
        self.told: list[Any] = []

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        if self.is_async:
            return asyncio.run(getattr(self.graph, f"a{name}")(*args, **options))
        return getattr(self.graph, name)(*args, **options)

    def invoke(self, given: Any, at: Any = None) -> Any:
        answer = self._call("invoke", given, at or self.config, durability=self.durability)
        self.told.append(answer)
        return answer

    def failing(self, given: Any, error: type[Exception]) -> None:
        try:
            self.invoke(given)
        except error as failed:
            self.told.append(repr(failed))
        else:
            raise AssertionError("nothing failed")

    def state(self, at: Any = None, *, subgraphs: bool = False) -> StateSnapshot:
        found: StateSnapshot = self._call("get_state", at or self.config, subgraphs=subgraphs)
        self.told.append(found)
        return found

    def update(self, values: Any, at: Any = None, as_node: str | None = None) -> Any:
        return self._call("update_state", at or self.config, values, as_node=as_node)

    def history(self, **options: Any) -> list[StateSnapshot]:
        """Newest first."""
        if self.is_async:
            return asyncio.run(self._history(options))
        return [*self.graph.get_state_history(self.config, **options)]

    async def _history(self, options: dict[str, Any]) -> list[StateSnapshot]:
        return [one async for one in self.graph.aget_state_history(self.config, **options)]

    def outcome(self) -> list[Any]:
        """All that was answered, and the whole history, oldest first."""
        names: dict[str, str] = {}
        told = [*self.history()[::-1], *self.told, self._call("get_state", self.config, subgraphs=True)]
        return [_comparable(one, names) for one in told]


Script = Callable[[Player], None]
Build = Callable[[BaseCheckpointSaver[Any]], Any]


def outcome(
    build: Build, script: Script, saver: BaseCheckpointSaver[Any], *, is_async: bool, durability: Durability
) -> list[Any]:
    """What a script on a new graph comes to."""
    player = Player(build(saver), is_async=is_async, durability=durability)
    script(player)
    return player.outcome()


def _comparable(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        return _ID.sub(lambda match: names.setdefault(match.group(), f"#{len(names)}"), value)
    if isinstance(value, dict):
        found = {_comparable(key, names): _comparable(one, names) for key, one in value.items() if key != "created_at"}
        if "__interrupt__" in found:  # of nodes that ran at once: in the order in which they happened to ask
            found["__interrupt__"] = sorted(found["__interrupt__"])
        return found
    if isinstance(value, StateSnapshot):
        return _comparable({**value._asdict(), "kind": "snapshot"}, names)
    if isinstance(value, list | tuple):
        return [_comparable(one, names) for one in value]
    if isinstance(value, BaseMessage):
        return _comparable({"kind": type(value).__name__, **value.model_dump()}, names)
    if hasattr(value, "__slots__") or hasattr(value, "__dict__"):
        return _comparable(repr(value), names) if not isinstance(value, set) else sorted(map(repr, value))
    return value
