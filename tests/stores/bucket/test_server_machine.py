"""The state machine of runs and journals on real servers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Clock
from tests.selection import tries
from tests.stores.bucket.conftest import Servers
from tests.stores.bucket.servers import HONEST, Server
from tests.stores.bucket.test_bucket_machine import open_bucket
from tests.stores.test_machine import StoreMachine

_servers: dict[str, Server] = {}


@pytest.fixture(autouse=True, scope="module")
def started(servers: Servers) -> None:
    _servers.update({kind: servers.get(kind) for kind in HONEST})


def _client(kind: str, path: Path) -> Any:
    return _servers[kind].client(f"machine/{path.parent.name}")


class MotoMachine(StoreMachine):
    @staticmethod
    def open_store(path: Path, clock: Callable[[], Clock], wall: Callable[[], int]) -> Store:
        return open_bucket(path, clock, wall, partial(_client, "moto"))


class AzuriteMachine(StoreMachine):
    @staticmethod
    def open_store(path: Path, clock: Callable[[], Clock], wall: Callable[[], int]) -> Store:
        return open_bucket(path, clock, wall, partial(_client, "azurite"))


TestMoto = MotoMachine.TestCase
TestAzurite = AzuriteMachine.TestCase
TestMoto.settings = TestAzurite.settings = settings(
    max_examples=tries(20, 4),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
