"""The base class of the contract suite: how to open the store, and a fixture with an open store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from holdfast.stores.contract import Store


class ContractBase:
    durable: ClassVar[bool]
    """Whether committed data is still there when the store is opened again."""
    joint_commits: ClassVar[bool] = True
    """Whether the store commits several threads together."""

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        raise NotImplementedError("define open_store() in the subclass: it opens the store to be tested")

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = self.open_store(tmp_path)
        yield store
        store.close()

    @pytest.fixture
    def needs_durable(self) -> None:
        if not self.durable:
            pytest.skip("the store does not outlive its handle")
