"""The log store: a log of groups per thread, replayed, on a device. The directory store is one on the file system."""

from holdfast.stores.log.store import DirectoryStore, LogStore

__all__ = ["DirectoryStore", "LogStore"]
