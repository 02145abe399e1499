"""DBOS's side of the comparison on PostgreSQL, a process per measurement: prints what it measured as JSON.

It needs DBOS and nothing of Holdfast. DBOS has its own settings; only its log is turned down, and its version of the
application is fixed, which spares it hashing the code.
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
    """DBOS, and a workflow of as many steps as it is told."""
    # Imported by name: a type checker need not have it.
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
    """Seconds from before the first of some workflows starts until the last is complete."""
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
