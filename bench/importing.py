"""Number 8: the time of `import holdfast` beyond that of its libraries."""

from __future__ import annotations

import subprocess
import sys

from bench.plan import Plan, child_environment
from bench.report import Number
from bench.timing import interleaved, spread

_PROGRAM = "import time; begin = time.perf_counter(); import {}; print(time.perf_counter() - begin)"


def measure(plan: Plan) -> list[Number]:
    environment = child_environment(plan.folder)

    def seconds(modules: str) -> float:
        command = [sys.executable, "-c", _PROGRAM.format(modules)]
        result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        return float(result.stdout)

    names = ("msgspec, ormsgpack, sqlite3", "holdfast")
    for name in names:
        seconds(name)  # writes the byte code
    base, whole = interleaved(plan.sizes.imports, *(lambda name=name: seconds(name) for name in names))
    more = spread([(b - a) * 1e3 for a, b in zip(base, whole, strict=True)])
    return [
        Number(
            number="8",
            what="import holdfast, beyond msgspec, ormsgpack and sqlite3",
            measured=(spread(whole).median - spread(base).median) * 1e3,
            unit="ms",
            at_most=60,
            low=more.low,
            high=more.high,
            note=f"{spread(whole).median * 1e3:.0f} ms against {spread(base).median * 1e3:.0f} ms; "
            f"fastest of each: {(min(whole) - min(base)) * 1e3:.0f} ms more",
        )
    ]
