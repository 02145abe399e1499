"""The store that lives in memory."""

from holdfast.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
