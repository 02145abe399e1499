"""Guards: halt a run before a call that is one too many. `Watch` is the point that every call of a run passes."""

from holdfast.runs.guards.budget import Budget
from holdfast.runs.guards.loops import LoopGuard
from holdfast.runs.guards.usage import added, cache_written, counted, model_named, spent
from holdfast.runs.guards.watch import UNWATCHED, Guard, Watch, WatchedCall, checked_guards

__all__ = [
    "UNWATCHED",
    "Budget",
    "Guard",
    "LoopGuard",
    "Watch",
    "WatchedCall",
    "added",
    "cache_written",
    "checked_guards",
    "counted",
    "model_named",
    "spent",
]
