"""Imports that are under way: LangGraph's serializer imports the module of a type, and waits for whoever is at it.

A graph may run at the top of a module, while that is being imported; the values in its state may be of the module's own
types. Its background threads would wait for the import, and the import for them.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any


def is_being_imported(module: str) -> bool:
    """Whether some thread is at the import of a module."""
    return _is_under_way(getattr(sys.modules.get(module), "__spec__", None))


def is_importing() -> bool:
    """Whether the caller's own thread is in the middle of an import."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and _is_under_way(frame.f_globals.get("__spec__")):
            return True
        frame = frame.f_back
    return False


def _is_under_way(spec: Any) -> bool:
    return bool(getattr(spec, "_initializing", False))
