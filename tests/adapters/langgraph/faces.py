"""A saver as the tests call it, by its sync or its async methods, and what they hand to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple

from tests.waiting import DEADLINE

T = TypeVar("T")


class Face:
    """One way to call a saver. Each async call has an event loop of its own: a saver is bound to none."""

    def __init__(self, saver: BaseCheckpointSaver[Any], *, is_async: bool) -> None:
        self.saver = saver
        self.is_async = is_async

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        if self.is_async:
            return asyncio.run(getattr(self.saver, f"a{name}")(*args, **options))
        return getattr(self.saver, name)(*args, **options)

    def put_raw(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: Any, new_versions: Mapping[str, Any]
    ) -> RunnableConfig:
        stored: RunnableConfig = self._call("put", config, checkpoint, metadata, new_versions)
        return stored

    def put(
        self,
        number: int,
        values: Mapping[str, Any] | None = None,
        *,
        parent: int | None = None,
        thread: Any = "t",
        ns: str = "",
        versions: Mapping[str, Any] | None = None,
        new: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **keys: Any,
    ) -> RunnableConfig:
        """Store a checkpoint. By default every value is new, at a version by its number."""
        given = dict(values or {})
        at = {name: version(number) for name in given} if versions is None else dict(versions)
        return self.put_raw(
            config(thread, ns, parent),
            checkpoint(number, given, at, **keys),
            {"source": "loop", "step": number, "parents": {}, **(metadata or {})},
            at if new is None else dict(new),
        )

    def write(
        self,
        number: int,
        writes: Sequence[tuple[str, Any]],
        task: str = "task",
        path: str = "",
        *,
        thread: Any = "t",
        ns: str = "",
    ) -> None:
        self._call("put_writes", config(thread, ns, number), writes, task, path)

    def get_raw(self, config: RunnableConfig) -> CheckpointTuple | None:
        found: CheckpointTuple | None = self._call("get_tuple", config)
        return found

    def get(self, number: int | None = None, *, thread: Any = "t", ns: str = "") -> CheckpointTuple:
        """A checkpoint that must be there; the latest, if no number is given."""
        found = self.get_raw(config(thread, ns, number))
        assert found is not None
        return found

    def values(self, number: int | None = None, *, thread: Any = "t", ns: str = "") -> dict[str, Any]:
        return self.get(number, thread=thread, ns=ns).checkpoint["channel_values"]

    def writes(self, number: int | None = None, *, thread: Any = "t", ns: str = "") -> list[tuple[str, str, Any]]:
        return list(self.get(number, thread=thread, ns=ns).pending_writes or [])

    def list(self, config: RunnableConfig | None, **options: Any) -> list[CheckpointTuple]:
        if self.is_async:
            return asyncio.run(_drained(self.saver, config, options))
        return [*self.saver.list(config, **options)]

    def delete_thread(self, thread: Any) -> None:
        self._call("delete_thread", thread)

    def delete_for_runs(self, runs: Sequence[str]) -> None:
        self._call("delete_for_runs", runs)

    def copy_thread(self, source: Any, target: Any) -> None:
        self._call("copy_thread", source, target)

    def prune(self, threads: Any, **options: Any) -> None:
        self._call("prune", threads, **options)

    def history(
        self, number: int | None, channels: Sequence[str], *, thread: Any = "t", ns: str = ""
    ) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._call(
            "get_delta_channel_history", config=config(thread, ns, number), channels=channels
        )
        return found


async def _drained(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig | None, options: dict[str, Any]
) -> list[CheckpointTuple]:
    return [found async for found in saver.alist(config, **options)]


def config(thread: Any = "t", ns: str | None = "", number: int | None = None) -> RunnableConfig:
    """The config of a thread, or of one checkpoint of it. Without a namespace if `ns` is None."""
    told: dict[str, Any] = {"thread_id": thread}
    if ns is not None:
        told["checkpoint_ns"] = ns
    if number is not None:
        told["checkpoint_id"] = checkpoint_id(number)
    return {"configurable": told}


def checkpoint_id(number: int) -> str:
    """Ids that sort by their number."""
    return f"1f0d5a10-{number:04x}-6000-8000-0000000000aa"


def version(number: int) -> str:
    return f"{number:032}.{0.5:016}"


def checkpoint(number: int, values: dict[str, Any], versions: dict[str, Any], **keys: Any) -> Checkpoint:
    made: Any = {
        "v": 4,
        "id": checkpoint_id(number),
        "ts": f"2026-01-01T00:00:{number % 60:02}+00:00",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {"__input__": {}},
        "updated_channels": sorted(values),
        **keys,
    }
    return made  # type: ignore[no-any-return]  # the tests also make some that upstream's type does not know


def numbers(found: Sequence[CheckpointTuple]) -> list[int]:
    """Which checkpoints these are, as the tests number them."""
    return [int(one.checkpoint["id"].split("-")[1], 16) for one in found]


def id_of(config: RunnableConfig | None) -> Any:
    return None if config is None else config["configurable"].get("checkpoint_id")


def in_time(work: Callable[[], T]) -> T:
    """Do what must not hang; fail if it does."""
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again by the test's own thread
            failed.append(error)

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    worker.join(DEADLINE)
    assert not worker.is_alive(), f"still not done after {DEADLINE:.0f} s"
    if failed:
        raise failed[0]
    return done[0]


def awaited(work: Coroutine[Any, Any, T]) -> T:
    """Run to its end in a loop of its own; fail if it hangs."""

    async def limited() -> T:
        return await asyncio.wait_for(work, DEADLINE)

    return asyncio.run(limited())
