"""The state machine of runs and journals on real servers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings

from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Clock
from holdfast.stores.log.bucket_store import BucketStore
from tests.selection import tries
from tests.stores.bucket.conftest import Servers
from tests.stores.bucket.servers import Server
from tests.stores.test_machine import StoreMachine


class _OnServer(StoreMachine):
    kind: ClassVar[str]
    server: ClassVar[Server]
    places: ClassVar[dict[Path, tuple[Any, Callable[[], int]]]] = {}

    @classmethod
    def open_store(cls, path: Path, clock: Callable[[], Clock], wall: Callable[[], int]) -> Store:
        new = (cls.server.client(f"machine/{path.parent.name}"), itertools.count(1).__next__)
        client, number = cls.places.setdefault(path, new)
        return BucketStore(
            "s3://bucket/store", namespace="default", client=client, grace=0, clock=clock, wall=wall, number=number
        )


class MotoMachine(_OnServer):
    kind = "moto"


class AzuriteMachine(_OnServer):
    kind = "azurite"


@pytest.fixture(autouse=True, scope="module")
def started(servers: Servers) -> None:
    for machine in (MotoMachine, AzuriteMachine):
        machine.server = servers.get(machine.kind)


TestMoto = MotoMachine.TestCase
TestAzurite = AzuriteMachine.TestCase
TestMoto.settings = TestAzurite.settings = settings(
    max_examples=tries(20, 4),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
