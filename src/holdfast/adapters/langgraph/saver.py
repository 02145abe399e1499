"""The checkpointer: LangGraph's saver interface on a Holdfast store."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from types import FrameType, TracebackType
from typing import Any, Final, Literal, Self, TypeVar

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
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.adapters.langgraph import copies, removal
from holdfast.adapters.langgraph.allowed_types import serde_for
from holdfast.adapters.langgraph.checkpoint_format import (
    checked_thread_id,
    checkpoint_id_of,
    config_of,
)
from holdfast.adapters.langgraph.checkpoints import GraphThread
from holdfast.adapters.langgraph.graph_schema import Change, Schema
from holdfast.adapters.langgraph.invocations import REFUSAL, Lock, Patience, Update, token_of, update_of
from holdfast.adapters.langgraph.serde import Values
from holdfast.adapters.langgraph.shared_threads import SharedThreads
from holdfast.adapters.langgraph.stored import Put
from holdfast.aio.executor import to_the_end
from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.handle import open as open_handle
from holdfast.stores.contract_runs import Entry
from holdfast.types import EraseResult

T = TypeVar("T")

_PAGE: Final = 20  # checkpoints that an async listing reads at a time
_STRICT: Final = "LANGGRAPH_STRICT_MSGPACK"  # LangGraph's own setting


class HoldfastSaver(BaseCheckpointSaver[str]):
    """A LangGraph checkpointer on any store, for sync and async graphs, usable from any thread and event loop.

    `store` is what `holdfast.open` accepts, with its options, or an open handle, which the caller closes.

    A graph gets back the values that it puts in. A class of the application is built if this process has saved it, or
    if its module is already imported; no module is imported because stored data names it. Where a class is not
    available, the graph gets the stored data, as with LangGraph's own savers. With `strict=True`, or LangGraph's own
    setting LANGGRAPH_STRICT_MSGPACK, only the types in `allow` (classes, schemas, or (module, name)) and in the schema
    of the graph are built, and a value of any other type is refused when it is saved. `allow=True` allows every type.

    One invocation at a time runs on a thread, in all processes. With `busy="wait"`, another one waits until it has
    ended, for at most `wait` seconds; with `busy="refuse"` it is refused. Conflict then: nothing was stored or called.

    `migrate` changes the channels of older checkpoints when they are read: `{1: to_version_2, 2: to_version_3}`. Each
    function takes the channels as a dict and returns a dict. The next checkpoint stores the result. If graphs share the
    saver, name them in `metadata={"graph": …}` of their configs, and pass `{name: {1: …}}`.

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
        strict: bool = False,
        busy: Literal["wait", "refuse"] = "wait",
        wait: float = 60.0,
        migrate: Mapping[int, Change] | Mapping[str, Mapping[int, Change]] | None = None,
        **options: Any,
    ) -> None:
        if serde is not None and (allow != () or strict):
            raise InvalidArgument("allow= and strict= are for the default serde; configure the types in your own serde")
        super().__init__(serde=serde or serde_for(allow))
        if busy not in ("wait", "refuse"):
            raise InvalidArgument('busy must be "wait" or "refuse"')
        self._wait = wait
        self._patience = wait if busy == "wait" else REFUSAL
        self._has_own_serde = serde is not None
        self._strict = strict or os.environ.get(_STRICT, "").lower() in ("1", "true", "yes")
        self._values: Values | None = None
        schema = Schema(migrate)
        if isinstance(store, Holdfast):
            if options:
                raise InvalidArgument("an open handle takes no options; give them to holdfast.open")
            self.shared = SharedThreads(store, schema)
            self._owns = False
        else:
            self.shared = SharedThreads(open_handle(store, **options), schema)
            self._owns = True

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """A saver on a SQLite file or a PostgreSQL database, to be used with `with` or `async with`.

        It takes what the savers of LangGraph take: a path, `:memory:`, or `postgresql://…`.
        """
        return cls("memory:" if conn_string == ":memory:" else conn_string, **options)

    def setup(self) -> Awaitable[None]:
        """Do nothing: the store is ready when the saver was created. It may be awaited."""
        return _Done()

    @property
    def hf(self) -> Holdfast:
        """The handle of the store. The saver's threads are ordinary Holdfast threads."""
        return self.shared.hf

    @property
    def values(self) -> Values:
        """The conversion of values with the saver's serde, which may be assigned at any time."""
        if self._values is None or self._values.serde is not self.serde:
            is_default = not self._has_own_serde and type(self.serde) is JsonPlusSerializer
            self._values = Values(self.serde, strict=self._strict and is_default, is_default=is_default)
        return self._values

    def lock(self, thread_id: str, *, wait: float | None = None) -> Lock:
        """A block in which no other caller invokes a graph on a thread, for `with` and `async with`.

        Conflict if the thread is in use for longer than `wait` seconds.
        """
        thread = self.shared.thread(checked_thread_id(thread_id), "")
        return Lock(self.shared.invocations, thread, self._wait if wait is None else wait)

    def release(self) -> None:
        """Let other processes have the threads whose invocations have ended. That also happens soon by itself."""
        self.shared.invocations.tick()

    def close(self) -> None:
        """Close the store, if the saver opened it."""
        self.shared.invocations.close()
        if self._owns:
            self.shared.hf.close()

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

    def _thread(self, config: RunnableConfig) -> GraphThread:
        said: Mapping[str, Any] = config.get("configurable", {})
        return self.shared.thread(checked_thread_id(said.get("thread_id")), said.get("checkpoint_ns") or "")

    def _patience_for(self, thread: GraphThread) -> Patience:
        return Patience(thread, self._patience, "the input was not stored. Try again later, or pass a longer wait=.")

    # -- sync -------------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, token = self._thread(config), token_of(config)
        if token is not None:
            self.shared.invocations.start(thread, token, self._patience_for(thread))
        return thread.get(self.values, config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        return self.shared.list(self.values, config, filter, before, limit)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint. Conflict if another writer has continued from its parent meanwhile."""
        thread = self._thread(config)
        put = thread.take(self.values, config, checkpoint, metadata, new_versions)
        return self._put(config, thread, put, update_of(config))

    def _put(self, config: RunnableConfig, thread: GraphThread, put: Put, update: Update | None) -> RunnableConfig:
        invocations = self.shared.invocations
        if update is None:
            thread.put(put, config)
        else:
            root = self._root(thread)
            invocations.update(root, update, is_last=True)
            try:
                thread.put(put, config)
            finally:
                invocations.stop(root, update.token)
        if not thread.namespace:
            invocations.stored(thread, config, is_last=put.is_last)
        return config_of(config.get("configurable", {}).get("thread_id"), thread.namespace, put.id)

    def _root(self, thread: GraphThread) -> GraphThread:
        return thread if not thread.namespace else self.shared.thread(thread.thread_id, "")

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread = self._thread(config)
        entry = thread.entry(self.values, config, writes, task_id, task_path)
        self._append(config, thread, entry, writes, update_of(config))

    def _append(
        self,
        config: RunnableConfig,
        thread: GraphThread,
        entry: Entry,
        writes: Sequence[tuple[str, Any]],
        update: Update | None,
    ) -> None:
        if update is not None:  # before its checkpoint LangGraph stores what a DeltaChannel reads
            self.shared.invocations.update(self._root(thread), update, is_last=False)
        thread.append(entry)
        if not thread.namespace:
            self.shared.invocations.wrote(thread, config, writes, entry.name)

    def delete_thread(self, thread_id: str) -> None:
        removal.delete_thread(self.shared, thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        removal.delete_for_runs(self.shared, run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        copies.copy_thread(self.shared, source_thread_id, target_thread_id)

    def fork(self, source_thread_id: str, target_thread_id: str, checkpoint_id: str | None = None) -> None:
        """Start a thread at a checkpoint of another one, the latest by default, with the subgraphs as they were then.

        A fork of the latest checkpoint has its open questions, and the results of its step. Nothing is copied.
        """
        copies.fork(self.shared, source_thread_id, target_thread_id, checkpoint_id)

    def rewind(self, thread_id: str, checkpoint_id: str) -> None:
        """Continue a thread from an earlier checkpoint, with the subgraphs as they were then. Nothing is deleted.

        A copy of the checkpoint becomes the latest one: its nodes run again, and its questions are asked again.
        """
        copies.rewind(self.shared, thread_id, checkpoint_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        removal.prune(self.shared, thread_ids, strategy)

    def prune_idle(self, *, older_than: float | timedelta, strategy: str = "keep_latest") -> int:
        """Prune every thread that has not changed for this time (seconds or a timedelta). Returns their number."""
        return removal.prune_idle(self.shared, older_than, strategy)

    def erase(self, thread_id: str, *, forks: bool = False) -> Sequence[EraseResult]:
        """Erase a thread from the store and its files: every namespace, and the journal of its tools.

        Calls `hf.erase` for each of them and returns the results.
        """
        return removal.erase(self.shared, thread_id, forks=forks)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        if not channels:
            return {}
        return removal.history(self._thread(config), self.values, checkpoint_id_of(config), channels)

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
        thread, token = self._thread(config), token_of(config)
        if token is not None:
            await self.shared.invocations.astart(thread, token, self._patience_for(thread))
        return await _loaded(lambda: thread.get(self.values, config))

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
        thread, update = self._thread(config), update_of(config)
        put = thread.take(self.values, config, checkpoint, metadata, new_versions)
        return await to_the_end(lambda: self._put(config, thread, put, update))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread = self._thread(config)
        entry = thread.entry(self.values, config, writes, task_id, task_path)
        update = update_of(config)
        await to_the_end(lambda: self._append(config, thread, entry, writes, update))

    async def adelete_thread(self, thread_id: str) -> None:
        await to_the_end(lambda: self.delete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await to_the_end(lambda: self.delete_for_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await to_the_end(lambda: self.copy_thread(source_thread_id, target_thread_id))

    async def afork(self, source_thread_id: str, target_thread_id: str, checkpoint_id: str | None = None) -> None:
        await to_the_end(lambda: self.fork(source_thread_id, target_thread_id, checkpoint_id))

    async def arewind(self, thread_id: str, checkpoint_id: str) -> None:
        await to_the_end(lambda: self.rewind(thread_id, checkpoint_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await to_the_end(lambda: self.prune(thread_ids, strategy=strategy))

    async def aprune_idle(self, *, older_than: float | timedelta, strategy: str = "keep_latest") -> int:
        return await to_the_end(lambda: self.prune_idle(older_than=older_than, strategy=strategy))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await _loaded(lambda: self.get_delta_channel_history(config=config, channels=channels))


async def _loaded(work: Callable[[], T]) -> T:
    """Load in another thread; in this one while it imports a module, for which the other thread would wait forever."""
    frame: FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage] - Python has no public way
    while frame is not None:
        if frame.f_code.co_name == "<module>" and getattr(frame.f_globals.get("__spec__"), "_initializing", False):
            return work()
        frame = frame.f_back
    return await to_the_end(work)


class _Done:
    """The result of `setup`, for callers that await it, too."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield
