"""A store in memory with the state layer on top, for tests that look at what a save adds."""

from __future__ import annotations

from typing import Any

from holdfast.handle import Holdfast
from holdfast.stores.contract import Commit
from holdfast.stores.sqlite.memory import MemoryStore


class WatchedStore(MemoryStore):
    """Remembers the last commit."""

    def __init__(self) -> None:
        super().__init__(namespace="default")
        self.last_commit: Commit | None = None

    def commit(self, commit: Any) -> Any:
        position = super().commit(commit)
        self.last_commit = commit
        return position


class Engine:
    """Saves states to one thread and tells what each save stored."""

    def __init__(self) -> None:
        self.store = WatchedStore()
        self.hf = Holdfast(self.store)
        self.thread = self.hf.thread("agent")

    def save(self, state: Any) -> Added:
        self.thread.save(state)
        commit = self.store.last_commit
        assert commit is not None
        return Added(commit)

    def cold_state(self) -> Any:
        """The state as a handle that holds nothing reads it."""
        latest = Holdfast(self.store).thread("agent").latest()
        assert latest is not None
        return latest.state

    def cold(self) -> None:
        """Forget everything the handle holds."""
        self.hf = Holdfast(self.store)
        self.thread = self.hf.thread("agent")


class Added:
    """What one save added to the store."""

    def __init__(self, commit: Commit) -> None:
        self.cells = sum(len(run.cells) for run in commit.appends)
        cell_bytes = sum(len(cell) for run in commit.appends for cell in run.cells)
        spans = len(commit.row.refs.spans) + sum(len(refs.spans) for run in commit.appends for refs in run.refs)
        value_bytes = sum(len(piece) for value in commit.blobs for piece in value.pieces)
        self.values = len(commit.blobs)
        self.spans = spans
        # A span takes up to six integers; most are small.
        self.bytes = cell_bytes + value_bytes + len(commit.row.skeleton) + len(commit.row.meta) + 12 * spans
