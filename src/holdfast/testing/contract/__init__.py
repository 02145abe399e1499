"""The store contract (`holdfast.stores.contract`) as a test suite."""

from __future__ import annotations

from holdfast.testing.contract.cells import CellsContract
from holdfast.testing.contract.checkpoint_pages import HistoryContract
from holdfast.testing.contract.claims import ActContract
from holdfast.testing.contract.concurrency import ConcurrencyContract
from holdfast.testing.contract.due_runs import DueRunContract
from holdfast.testing.contract.forks import ForkContract
from holdfast.testing.contract.handles import HandleContract
from holdfast.testing.contract.joint_commits import JointCommitContract
from holdfast.testing.contract.journal_entries import JournalContract
from holdfast.testing.contract.leases import LeaseContract
from holdfast.testing.contract.namespaces import NamespaceContract
from holdfast.testing.contract.queues import LimitContract, QueueContract
from holdfast.testing.contract.run_rows import RunContract
from holdfast.testing.contract.stored_blobs import BlobContract
from holdfast.testing.contract.stored_commits import CommitContract
from holdfast.testing.contract.suspended_runs import SuspendedRunContract
from holdfast.testing.contract.swept_cells import SweepContract
from holdfast.testing.contract.thread_pages import ListingContract


class StoreContract(
    CommitContract,
    JointCommitContract,
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
    SuspendedRunContract,
    DueRunContract,
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
    the first was closed. A store with `durable = False` starts empty each time. A store that cannot commit several
    threads together sets `joint_commits = False`.
    """
