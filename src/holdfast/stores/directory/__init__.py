"""The directory store: a folder of text files."""

from holdfast.stores.directory.store import DirectoryStore

__all__ = ["DirectoryStore"]
