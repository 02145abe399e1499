"""The measurement of Absurd on PostgreSQL. Prints the results as JSON.

It needs Absurd and not Holdfast. Absurd has its default settings. Each concurrent run has a worker with a connection of
its own, because all tasks of one worker share one connection.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import queue
import sys
import threading
from typing import Any

from bench.side_by_side import measure


def acting(url: str, runs: int, steps: int) -> dict[str, Any]:
    """Runs whose steps act. A step that calls a model is the same in Absurd."""
    # Imported by name, so that type checkers do not need them.
    absurd, psycopg = importlib.import_module("absurd_sdk"), importlib.import_module("psycopg")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(importlib.import_module("absurdctl").BUNDLED_SCHEMA_SQL)
    made: list[int] = []
    tasks: list[str] = []
    here = threading.local()

    def act(i: int) -> int:
        made.append(i)
        return i

    def work(given: dict[str, int], context: Any) -> int:
        here.served = True
        last = 0
        for i in range(1, given["steps"] + 1):
            last = context.step("act", lambda i=i: act(i))
        return last

    workers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for _ in range(runs):
        worker = absurd.Absurd(url)
        worker.register_task(name="work")(work)
        workers.put(worker)
    client = absurd.Absurd(url)
    client.create_queue()

    def served(_: str, count: int) -> None:
        worker = workers.get()
        tasks.append(worker.spawn("work", {"steps": count})["task_id"])
        here.served = False
        while not here.served:  # another worker may be claiming the only task that this one sees
            worker.work_batch()
        workers.put(worker)

    found = measure(served, made, runs, steps)
    assert all(client.fetch_task_result(task).state == "completed" for task in tasks), "a task failed"
    return {**found, "settings": f"Absurd {importlib.metadata.version('absurd-sdk')}, one worker for each run"}


if __name__ == "__main__":
    print(json.dumps(acting(sys.argv[3], *map(int, sys.argv[4:]))), flush=True)
