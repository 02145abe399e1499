"""The measurements of DBOS on PostgreSQL, one process each. Prints the results as JSON.

It needs DBOS and not Holdfast. DBOS has its default settings, except for less logging and a fixed application version,
so that it need not hash the code.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

WARM_UP = 50


def launch(url: str) -> tuple[Any, Callable[[int], int]]:
    """Start DBOS, with a workflow of a given number of steps."""
    # Imported by name, so that type checkers do not need DBOS.
    dbos = importlib.import_module("dbos").DBOS
    dbos(
        config={
            "name": "bench",
            "system_database_url": url,
            "log_level": "ERROR",
            "application_version": "1",
        }
    )

    def trivial(i: int) -> int:
        return i

    step = dbos.step(name="step")(trivial)

    def steps_of(steps: int) -> int:
        for i in range(1, steps + 1):
            step(i)
        return steps

    workflow = dbos.workflow(name="work")(steps_of)
    dbos.launch()
    workflow(WARM_UP)
    return dbos, workflow


def measure(url: str, workflows: int, steps: int) -> dict[str, Any]:
    """Seconds from the start of the first workflow to the end of the last."""
    dbos, workflow = launch(url)
    ended: list[int] = []
    threads = [threading.Thread(target=lambda: ended.append(workflow(steps))) for _ in range(workflows)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    assert ended == [steps] * workflows, "a workflow failed"
    dbos.destroy()
    return {"seconds": seconds, "version": importlib.metadata.version("dbos")}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))), flush=True)
    # The threads of DBOS would keep the process alive.
    os._exit(0)
