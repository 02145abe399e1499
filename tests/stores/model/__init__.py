"""A model of a store: dicts and lists, and the same answers as every store."""

from tests.stores.model.store import ModelStore

__all__ = ["ModelStore"]
