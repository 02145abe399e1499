"""Requests and bytes of a store in a bucket, per verb, and what a million steps cost. `make bench-bucket`.

The counts are those of the device, on a bucket in memory: a server would get the same requests. Prices are parameters,
in dollars per 1,000 requests of each class. The defaults are list prices of Amazon S3 Standard; look up your own.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from obstore.store import MemoryStore

import holdfast
from holdfast.runs.handlers import Handlers
from holdfast.runs.work_queue import WorkQueue
from holdfast.stores.log.bucket_store import BucketStore

CHECKPOINTS: Final = 1_000
STEPS: Final = 100
THREADS: Final = 20
MOST_REQUESTS: Final = 5  # of a cold latest()
KINDS: Final = ("put", "list", "get", "head", "delete")
STEP, RENEWAL, POLL, CLAIM = "step of a run", "renew a lease", "poll of an idle worker", "claim a queued run"


class Prices(NamedTuple):
    """Dollars per 1,000 requests: PUT and LIST, and GET and HEAD. Deletions are free."""

    writing: float = 0.005
    reading: float = 0.0004

    def of(self, requests: dict[str, float]) -> float:
        """The dollars for these requests."""
        writing, reading = requests["put"] + requests["list"], requests["get"] + requests["head"]
        return (writing * self.writing + reading * self.reading) / 1000


class Place:
    """A bucket in memory, and handles on it whose requests are counted."""

    def __init__(self) -> None:
        self._client: Any = MemoryStore()

    def store(self) -> BucketStore:
        return BucketStore("s3://memory/bench", namespace="default", client=self._client)


class Row:
    """The requests and bytes of a verb."""

    def __init__(self, name: str, store: BucketStore, work: Callable[[], object], *, times: int = 1) -> None:
        store.clock()  # so that its measurement, once a minute, does not count
        requests, sent = Counter(store.objects.requests), Counter(store.objects.bytes)
        for _ in range(times):
            work()
        self.name = name
        found = store.objects.requests
        self.requests = {kind: (found[kind] - requests[kind]) / times for kind in KINDS}
        self.bytes = {kind: (store.objects.bytes[kind] - sent[kind]) / times for kind in ("put", "get")}

    @property
    def total(self) -> float:
        return sum(self.requests.values())


def rows(checkpoints: int = CHECKPOINTS) -> list[Row]:
    """Measure each verb. One thread gets so many checkpoints."""
    place = Place()
    store = place.store()
    with holdfast.open(store) as hf:
        return [*_threads(hf, store, place, checkpoints), *_runs(hf, store, place), *_lists(hf, place)]


def _threads(hf: holdfast.Holdfast, store: BucketStore, place: Place, checkpoints: int) -> list[Row]:
    thread = hf.thread("a")
    messages = [{"role": "user", "content": "x" * 200}]

    def save() -> None:
        messages.append({"role": "assistant", "content": "y" * 200})
        thread.save(messages)

    found = [
        Row("create a thread", store, lambda: thread.save(messages)),
        Row("save, warm", store, save, times=checkpoints - 1),
        Row("latest, warm", store, thread.latest, times=10),
    ]
    cold = place.store()
    with holdfast.open(cold) as other:
        found.append(Row(f"latest, cold, {checkpoints:,} checkpoints", cold, lambda: other.thread("a").latest()))
    blob = {"file": "z" * 200_000}
    return [*found, Row("save with a new value of 200 kB, warm", store, lambda: hf.thread("b").save([blob]))]


def _reply() -> dict[str, str]:
    return {"role": "assistant", "content": "y" * 200}


@holdfast.tool(effect="irreversible")
def _act() -> str:
    return "done"


def _nothing(run: holdfast.Run) -> None:
    """A handler."""


def _runs(hf: holdfast.Holdfast, store: BucketStore, place: Place) -> list[Row]:
    found: list[Row] = []
    with hf.run("run", start=[], tools=[_act], lease=3600.0) as run:  # so that no renewal is counted
        steps = iter(run.steps())

        def step() -> None:
            """A model call, a tool call, and the checkpoint that the next step makes."""
            next(steps)
            run.state.append(run.model(_reply))
            run.state.append(run.tool("_act"))

        step()
        found.append(Row(STEP, store, step, times=STEPS))
        row = store.run(number := _number(store, "run"))
        assert row is not None
        until = store.clock().now + 60_000
        found.append(Row(RENEWAL, store, lambda: store.renew(number, row.fence, until), times=5))
    cold = place.store()
    with holdfast.open(cold) as other:

        def resume() -> None:
            with other.run("run", start=[], tools=[_act]) as run:
                run.finish()

        found.append(Row(f"resume and end a run of {STEPS} steps, cold", cold, resume))
    found.append(Row("submit a run", store, lambda: hf.submit("work", "queued", start=[])))
    worker = place.store()
    with holdfast.open(worker) as other:

        def work() -> None:
            other.worker({"work": _nothing}).run(until_idle=True)

        queue = WorkQueue(worker, Handlers({"work": _nothing}, None, (), {}))
        found.append(Row(f"{CLAIM}, run and end it, with two polls", worker, work))
        found.append(Row(f"{POLL}, {THREADS} threads", worker, lambda: list(queue), times=4))
    return found


def _lists(hf: holdfast.Holdfast, place: Place) -> list[Row]:
    while (missing := THREADS - sum(1 for _ in hf.threads())) > 0:
        hf.thread(f"t{missing}").save([1])
    cold = place.store()
    with holdfast.open(cold) as other:
        return [
            Row(f"list {THREADS} threads, cold", cold, lambda: list(other.threads())),
            Row(f"list {THREADS} threads, warm", cold, lambda: list(other.threads())),
        ]


def _number(store: BucketStore, name: str) -> int:
    head = store.head(name)
    assert head is not None
    return head.thread.position.thread


def found(measured: list[Row], name: str) -> Row:
    """The row whose name starts so."""
    return next(row for row in measured if row.name.startswith(name))


def table(measured: list[Row], prices: Prices) -> str:
    """The table, as Markdown."""
    lines = [
        "| verb | PUT | LIST | GET | HEAD | DELETE | bytes written | bytes read | dollars per million |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in measured:
        counts = " | ".join(f"{row.requests[kind]:.3g}" for kind in KINDS)
        size = f"{row.bytes['put']:,.0f} | {row.bytes['get']:,.0f}"
        lines.append(f"| {row.name} | {counts} | {size} | {prices.of(row.requests) * 1_000_000:,.2f} |")
    return "\n".join(lines)


def million(measured: list[Row], prices: Prices, *, seconds: float, lease: float) -> str:
    """A sentence: the dollars for a million steps, one in so many seconds, while the runs are held."""
    steps = prices.of(found(measured, STEP).requests) * 1_000_000
    renewals = prices.of(found(measured, RENEWAL).requests) * 1_000_000 * seconds / (lease / 3)
    return (
        f"A million steps cost {steps:,.2f} dollars. If each takes {seconds:g} seconds, the leases of the runs, of "
        f"{lease:g} seconds each, cost {renewals:,.2f} dollars more."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writing", type=float, default=Prices().writing, help="dollars per 1,000 PUT, LIST")
    parser.add_argument("--reading", type=float, default=Prices().reading, help="dollars per 1,000 GET, HEAD")
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds of a step")
    parser.add_argument("--lease", type=float, default=30.0, help="seconds of a lease")
    args = parser.parse_args()
    prices = Prices(args.writing, args.reading)
    measured = rows()
    sys.stdout.write(f"{table(measured, prices)}\n\n")
    sys.stdout.write(f"{million(measured, prices, seconds=args.seconds, lease=args.lease)}\n")
    cold = found(measured, "latest, cold")
    if cold.total > MOST_REQUESTS:
        sys.stdout.write(f"\nA cold latest() needs {cold.total:g} requests, more than {MOST_REQUESTS}.\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
