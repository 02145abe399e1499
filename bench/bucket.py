"""Requests and bytes of a store in a bucket, per verb, and what a million steps cost. `make bench-bucket`.

The counts are those of the device, on a bucket in memory: a server would get the same requests. Prices are parameters,
in dollars per 1,000 requests of each class. The defaults are list prices of Amazon S3 Standard; look up your own.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from obstore.store import MemoryStore

import holdfast
from holdfast.stores.log.bucket_store import BucketStore

CHECKPOINTS: Final = 1_000
MOST_REQUESTS: Final = 5  # of a cold latest()
# put, list: class A; get, head: class B; deletions are free on S3.
CLASSES: Final = {"put": "a", "list": "a", "get": "b", "head": "b", "delete": "free"}


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
        self.requests = {kind: (found[kind] - requests[kind]) / times for kind in CLASSES}
        self.bytes = {kind: (store.objects.bytes[kind] - sent[kind]) / times for kind in ("put", "get")}

    @property
    def total(self) -> float:
        return sum(self.requests.values())

    def dollars(self, prices: dict[str, float]) -> float:
        return sum(count * prices[CLASSES[kind]] / 1000 for kind, count in self.requests.items())


def rows() -> list[Row]:
    """Measure each verb."""
    place = Place()
    store = place.store()
    hf = holdfast.open(store)
    thread = hf.thread("a")
    messages = [{"role": "user", "content": "x" * 200}]
    found = [Row("create a thread", store, lambda: thread.save(messages))]

    def save() -> None:
        messages.append({"role": "assistant", "content": "y" * 200})
        thread.save(messages)

    found.append(Row("save, warm", store, save, times=CHECKPOINTS - 1))
    found.append(Row("latest, warm", store, thread.latest, times=10))
    cold = place.store()
    with holdfast.open(cold) as other:
        found.append(Row(f"latest, cold, {CHECKPOINTS:,} checkpoints", cold, lambda: other.thread("a").latest()))
    blob = {"file": "z" * 200_000}
    found.append(Row("save with a new value of 200 kB, warm", store, lambda: hf.thread("b").save([blob])))
    found += _runs(hf, store, place)
    for number in range(18):
        hf.thread(f"t{number}").save([1])
    cold = place.store()
    with holdfast.open(cold) as other:
        found.append(Row("list 20 threads, cold", cold, lambda: list(other.threads())))
        found.append(Row("list 20 threads, warm", cold, lambda: list(other.threads())))
        found.append(Row("look for due runs among 20 threads, warm", cold, lambda: cold.due(limit=10)))
    hf.close()
    return found


def _reply() -> str:
    return "reply"


def _runs(hf: holdfast.Holdfast, store: BucketStore, place: Place) -> list[Row]:
    found: list[Row] = []
    with hf.run("run", start=[]) as run:
        found.append(Row("model call in a run", store, lambda: run.model(_reply), times=20))
        row = store.run(number := _number(store, "run"))
        assert row is not None
        until = store.clock().now + 60_000
        found.append(Row("renew a lease", store, lambda: store.renew(number, row.fence, until), times=5))
    cold = place.store()
    with holdfast.open(cold) as other:

        def resume() -> None:
            with other.run("run", start=[]):
                pass

        found.append(Row("claim, resume and end a run, cold", cold, resume))
    return found


def _number(store: BucketStore, name: str) -> int:
    head = store.head(name)
    assert head is not None
    return head.thread.position.thread


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--class-a", type=float, default=0.005, help="dollars per 1,000 PUT, LIST")
    parser.add_argument("--class-b", type=float, default=0.0004, help="dollars per 1,000 GET, HEAD")
    args = parser.parse_args()
    prices = {"a": args.class_a, "b": args.class_b, "free": 0.0}
    write = sys.stdout.write
    write("| verb | PUT | LIST | GET | HEAD | DELETE | bytes written | bytes read | dollars per million |\n")
    write("|---|---|---|---|---|---|---|---|---|\n")
    measured = rows()
    for row in measured:
        counts = " | ".join(f"{row.requests[kind]:.3g}" for kind in ("put", "list", "get", "head", "delete"))
        size = f"{row.bytes['put']:,.0f} | {row.bytes['get']:,.0f}"
        write(f"| {row.name} | {counts} | {size} | {row.dollars(prices) * 1_000_000:,.2f} |\n")
    cold = next(row for row in measured if row.name.startswith("latest, cold"))
    if cold.total > MOST_REQUESTS:
        write(f"\nA cold latest() needs {cold.total:g} requests, more than {MOST_REQUESTS}.\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
