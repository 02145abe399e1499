"""The memory store: dicts and lists, lost when it is closed."""

from holdfast.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
