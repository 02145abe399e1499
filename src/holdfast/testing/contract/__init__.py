"""The store contract (`holdfast.stores.contract`) as a test suite."""

from __future__ import annotations

from holdfast.testing.contract.blobs import BlobContract
from holdfast.testing.contract.cells import CellsContract
from holdfast.testing.contract.claims import ActContract
from holdfast.testing.contract.commits import CommitContract
from holdfast.testing.contract.concurrency import ConcurrencyContract
from holdfast.testing.contract.forks import ForkContract
from holdfast.testing.contract.handles import HandleContract
from holdfast.testing.contract.history import HistoryContract
from holdfast.testing.contract.journal import JournalContract
from holdfast.testing.contract.leases import LeaseContract
from holdfast.testing.contract.listing import ListingContract
from holdfast.testing.contract.namespaces import NamespaceContract
from holdfast.testing.contract.queues import LimitContract, QueueContract
from holdfast.testing.contract.runs import RunContract
from holdfast.testing.contract.sweeping import SweepContract
from holdfast.testing.contract.waiting import WaitingContract
from holdfast.testing.contract.waking import WakingContract


class StoreContract(
    CommitContract,
    HistoryContract,
    CellsContract,
    BlobContract,
    ForkContract,
    SweepContract,
    ListingContract,
    NamespaceContract,
    RunContract,
    LeaseContract,
    JournalContract,
    ActContract,
    WaitingContract,
    WakingContract,
    QueueContract,
    LimitContract,
    HandleContract,
    ConcurrencyContract,
):
    """The test suite that every store must pass. Subclass it, define how your store is opened, and run pytest:

    ```python
    class TestMine(StoreContract):
        durable = True

        def open_store(self, tmp_path, namespace="default"):
            return MyStore(tmp_path / "data", namespace=namespace)
    ```

    A store with `durable = True` that is opened twice with one path gives two handles on the same data, whether or not
    the first was closed. A store with `durable = False` starts empty each time.
    """
