"""Guards: halt a run before a call that is one too many. `Watch` is the hook that calls use."""

from holdfast.runs.guards.budget import Budget
from holdfast.runs.guards.loops import LoopGuard
from holdfast.runs.guards.usage import added, cache_written, counted, model_named, spent
from holdfast.runs.guards.watch import Guard, ModelCall, Watch, checked_guards

__all__ = [
    "Budget",
    "Guard",
    "LoopGuard",
    "ModelCall",
    "Watch",
    "added",
    "cache_written",
    "checked_guards",
    "counted",
    "model_named",
    "spent",
]
