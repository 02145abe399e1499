"""Convert values to bytes and back. A value that would not be restored exactly is refused."""

from holdfast.codec.registry import register

__all__ = ["register"]
