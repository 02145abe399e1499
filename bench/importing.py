"""Number 8: the processor time until a program has imported `holdfast.open`, beyond that of the libraries it needs.

`import holdfast` alone loads almost nothing: each name is loaded when it is first used.
"""

from __future__ import annotations

import subprocess
import sys

from bench.plan import Plan, child_environment
from bench.report import Number
from bench.timing import interleaved, spread

_PROGRAM = "import time; begin = time.process_time(); {}; print(time.process_time() - begin)"
_LIBRARIES = "import msgspec, ormsgpack, sqlite3, zstandard"
_OWN = "from holdfast import open"


def measure(plan: Plan) -> list[Number]:
    environment = child_environment(plan.folder)

    def seconds(statement: str) -> float:
        command = [sys.executable, "-c", _PROGRAM.format(statement)]
        result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        return float(result.stdout)

    for statement in (_LIBRARIES, _OWN):
        seconds(statement)  # writes the byte code
    base, whole = interleaved(plan.sizes.imports, lambda: seconds(_LIBRARIES), lambda: seconds(_OWN))
    more = spread([(b - a) * 1e3 for a, b in zip(base, whole, strict=True)])
    return [
        Number(
            number="8",
            what="import of holdfast.open, beyond msgspec, ormsgpack, sqlite3 and zstandard",
            measured=(spread(whole).median - spread(base).median) * 1e3,
            unit="ms",
            at_most=40,
            low=more.low,
            high=more.high,
            note=f"{spread(whole).median * 1e3:.0f} ms against {spread(base).median * 1e3:.0f} ms; "
            f"fastest of each: {(min(whole) - min(base)) * 1e3:.0f} ms more",
        )
    ]
