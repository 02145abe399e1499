"""Servers that all tests of a process share. Each test has a prefix of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.stores.bucket.servers import FOLDER, Server, running

# `make test-bucket` installs the servers and the model checker. `make test` runs what needs neither.
_NEED_SERVERS = ("servers", "server_machine", "faults", "fleet", "kills", "protocol_model")
collect_ignore = [] if FOLDER else [f"test_{name}.py" for name in _NEED_SERVERS]


class Servers:
    """The servers that were started."""

    def __init__(self, stack: ExitStack, folders: pytest.TempPathFactory) -> None:
        self._stack = stack
        self._folders = folders
        self._started: dict[str, Server] = {}

    def get(self, kind: str) -> Server:
        if kind not in self._started:
            self._started[kind] = self._stack.enter_context(running(kind, self._folders.mktemp(kind)))
        return self._started[kind]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack, tmp_path_factory)
