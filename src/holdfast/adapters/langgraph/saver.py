"""The checkpointer: LangGraph's saver interface on a Holdfast store."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph import reading, removing, writing
from holdfast.adapters.langgraph.allowing import serde_for
from holdfast.adapters.langgraph.core import Core
from holdfast.adapters.langgraph.importing import is_importing
from holdfast.adapters.langgraph.naming import config_of, namespace_of, thread_id_in, thread_id_of
from holdfast.aio.executor import to_the_end
from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.handle import open as open_handle
from holdfast.types import EraseResult

T = TypeVar("T")

_PAGE = 20  # checkpoints that an async listing reads at a time


class HoldfastSaver(BaseCheckpointSaver[str]):
    """A LangGraph checkpointer on any store, for sync and async graphs, usable from any thread and event loop.

    `store` is what `holdfast.open` accepts, with its options, or an open handle, which the caller closes. `allow`
    names the application's types that a state may contain: classes, schemas, or (module, name). Other types, except
    LangChain's and LangGraph's, are rejected on saving and on loading. True allows every type, as LangGraph's own
    savers do. If two runs use one thread at the same time, the second to save gets `holdfast.Conflict`.

    >>> saver = HoldfastSaver("memory:")
    >>> saver.get_tuple({"configurable": {"thread_id": "1"}}) is None
    True
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | Holdfast | None = None,
        *,
        serde: SerializerProtocol | None = None,
        allow: Iterable[Any] | Literal[True] = (),
        **options: Any,
    ) -> None:
        if serde is not None and allow != ():
            raise InvalidArgument("allow= is for the default serde; configure the types in your own serde")
        super().__init__(serde=serde or serde_for(allow))
        if isinstance(store, Holdfast):
            if options:
                raise InvalidArgument("an open handle takes no options; give them to holdfast.open")
            self.core = Core(store)
            self._owns = False
        else:
            self.core = Core(open_handle(store, **options))
            self._owns = True

    @property
    def hf(self) -> Holdfast:
        """The handle of the store. The saver's threads are ordinary Holdfast threads."""
        return self.core.hf

    def close(self) -> None:
        """Close the store, if the saver opened it."""
        if self._owns:
            self.core.hf.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await to_the_end(self.close)

    # -- sync -------------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return reading.get_tuple(self.core, self.serde, config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        return reading.list_tuples(self.core, self.serde, config, filter, before, limit)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint. Conflict if another run has continued from its parent meanwhile."""
        given = writing.take_put(self.core, self.serde, config, checkpoint, metadata, new_versions)
        return self._put(config, given)

    def _put(self, config: RunnableConfig, given: writing.Put) -> RunnableConfig:
        writing.put(self.core, self.core.track(thread_id_of(config), namespace_of(config)), given, config)
        return config_of(thread_id_in(config), namespace_of(config), given.id)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._put_writes(config, writing.take_writes(self.serde, config, writes, task_id, task_path))

    def _put_writes(self, config: RunnableConfig, given: writing.Writes) -> None:
        writing.put_writes(self.core, self.core.track(thread_id_of(config), namespace_of(config)), given)

    def delete_thread(self, thread_id: str) -> None:
        removing.delete_thread(self.core, thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        removing.delete_for_runs(self.core, run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        removing.copy_thread(self.core, source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        removing.prune(self.core, thread_ids, strategy)

    def erase(self, thread_id: str, *, forks: bool = False) -> Sequence[EraseResult]:
        """Erase a thread from the store and its files: every namespace, and the journal of its tools.

        Calls `hf.erase` for each of them and returns the results.
        """
        return removing.erase(self.core, thread_id, forks=forks)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return reading.delta_history(self.core, self.serde, config, channels) if channels else {}

    def get_next_version(self, current: str | float | None, channel: None = None) -> str:
        """The version after `current`. Its end is random, so that two forks of a checkpoint never share a version."""
        if current is None:
            number = 0
        elif isinstance(current, str):
            number = int(current.split(".")[0])
        else:
            number = int(current)
        return f"{number + 1:032}.{random.random():016}"  # noqa: S311 - must be distinct, not secret

    # -- async: values are copied before the first await ------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await _loaded(lambda: self.get_tuple(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = self.list(config, filter=filter, before=before, limit=limit)
        while page := await _loaded(lambda: [*islice(found, _PAGE)]):
            for each in page:
                yield each

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        given = writing.take_put(self.core, self.serde, config, checkpoint, metadata, new_versions)
        return await to_the_end(lambda: self._put(config, given))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        given = writing.take_writes(self.serde, config, writes, task_id, task_path)
        await to_the_end(lambda: self._put_writes(config, given))

    async def adelete_thread(self, thread_id: str) -> None:
        await to_the_end(lambda: self.delete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await to_the_end(lambda: self.delete_for_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await to_the_end(lambda: self.copy_thread(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await to_the_end(lambda: self.prune(thread_ids, strategy=strategy))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await _loaded(lambda: self.get_delta_channel_history(config=config, channels=channels))


async def _loaded(work: Callable[[], T]) -> T:
    """Load in another thread; in this one during an import, for which the other thread would wait forever."""
    return work() if is_importing() else await to_the_end(work)
