"""Detect Python imports in progress, to avoid a deadlock with LangGraph's serializer.

The serializer imports the module of a type. A graph may run at the top level of a module, with values of the module's
own types. A background thread would then wait for the import to finish, and the import for the thread.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any


def is_being_imported(module: str) -> bool:
    """Whether any thread is importing a module."""
    return _is_under_way(getattr(sys.modules.get(module), "__spec__", None))


def is_importing() -> bool:
    """Whether the current thread is in the middle of an import."""
    frame: FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage] - Python has no public way to walk the stack
    while frame is not None:
        if frame.f_code.co_name == "<module>" and _is_under_way(frame.f_globals.get("__spec__")):
            return True
        frame = frame.f_back
    return False


def _is_under_way(spec: Any) -> bool:
    return bool(getattr(spec, "_initializing", False))
