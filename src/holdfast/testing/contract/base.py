"""What every part of the contract suite has: a way to open the store, and a store that is open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from holdfast.stores.contract import Store


class ContractBase:
    durable: ClassVar[bool]
    """Whether what was committed is there again when the store is opened again."""

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        raise NotImplementedError("A subclass says how its store is opened.")

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = self.open_store(tmp_path)
        yield store
        store.close()

    @pytest.fixture
    def needs_durable(self) -> None:
        if not self.durable:
            pytest.skip("the store does not outlive its handle")
