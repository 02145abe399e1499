"""Folders in memory, for tests that kill processes: a kill keeps written data, synced or not, and syncs take long."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def folder_in_memory() -> Generator[Path]:
    """A new folder, in memory if the system has a place for it."""
    memory = Path("/dev/shm")  # noqa: S108 - a separate folder is created in it
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", dir=place) as name:
        yield Path(name)
