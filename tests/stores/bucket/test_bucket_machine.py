"""A state machine of runs and journals on a bucket in memory: it answers as the model does."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from obstore.store import MemoryStore

from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Clock
from holdfast.stores.log.bucket_store import BucketStore
from tests.selection import tries
from tests.stores.test_machine import StoreMachine

_places: dict[Path, tuple[Any, Callable[[], int]]] = {}


def open_bucket(
    path: Path,
    clock: Callable[[], Clock],
    wall: Callable[[], int],
    new: Callable[[Path], Any] = lambda path: MemoryStore(),
) -> Store:
    """A store that outlives its handles. `new` makes a client for it."""
    if path not in _places:
        _places[path] = new(path), itertools.count(1).__next__
    client, number = _places[path]
    return BucketStore(
        "s3://memory/store", namespace="default", client=client, grace=0, clock=clock, wall=wall, number=number
    )


class BucketMachine(StoreMachine):
    open_store = staticmethod(open_bucket)


TestBucketStores = BucketMachine.TestCase
TestBucketStores.settings = settings(
    max_examples=tries(60, 10), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
