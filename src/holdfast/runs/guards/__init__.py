"""Guards: halt a run before a call that would exceed a limit. `Watch` is the point that every call of a run passes."""

from holdfast.runs.guards.budget import Budget
from holdfast.runs.guards.loops import LoopGuard
from holdfast.runs.guards.usage import cache_written, model_named, spent, sum_of_usage, usage_of_reply
from holdfast.runs.guards.watch import UNWATCHED, Guard, Watch, WatchedCall, checked_guards

__all__ = [
    "UNWATCHED",
    "Budget",
    "Guard",
    "LoopGuard",
    "Watch",
    "WatchedCall",
    "cache_written",
    "checked_guards",
    "model_named",
    "spent",
    "sum_of_usage",
    "usage_of_reply",
]
