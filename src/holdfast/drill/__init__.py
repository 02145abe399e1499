"""The crash drill: kills an agent at every point of its run, resumes it, and reports what was repeated or lost."""

from holdfast.drill.faults import FAULTS, Fault
from holdfast.drill.report import DrillReport, Finding, Kill
from holdfast.drill.runner import crash_everywhere, drill_passes, run_drill
from holdfast.drill.spec import Drill

__all__ = [
    "FAULTS",
    "Drill",
    "DrillReport",
    "Fault",
    "Finding",
    "Kill",
    "crash_everywhere",
    "drill_passes",
    "run_drill",
]
