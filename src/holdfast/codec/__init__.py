"""Values to bytes and back: an explicit set of types, faithful or refused."""

from holdfast.codec.registry import register

__all__ = ["register"]
