"""Fixtures that open stores, and the selection of the stores that a run takes."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import holdfast
from holdfast import Holdfast
from tests import small
from tests.selection import keep_selected, left_out, tries
from tests.stores.postgres.server import reused_address_at

OpenHandle = Callable[..., Holdfast]

# Stores sync their files, and most tests are not about the disk. `tmp_path` is in memory if there is room for it.
_MEMORY = Path("/dev/shm")  # noqa: S108 - pytest creates a separate folder in it
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# Properties hold on a busy machine too: no test may fail because it is slow.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
# `make test` loads this one. Tests that set no number of examples take a share of them.
settings.register_profile("ci", settings.get_profile("ci"), max_examples=tries(100, 40))


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # In the background of a shell Ctrl-C is ignored, and the processes that tests interrupt would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "every_store(because): run on every store in `make test` too")
    config.addinivalue_line("markers", "in_full(because): run in `make test-stores` only")
    config.addinivalue_line("markers", "on_store(kind): the store of a test that has no parameter that names it")
    config.addinivalue_line("markers", "small_process(around): run in a process with little in memory: tests/small.py")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, and keep it away from the modules and tests afterwards.

    They stay until the end, and each full collection would walk through more than a million objects.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, object, object]:
    """Make no cases for the stores that this run does not take."""
    result = yield
    keep_selected(metafunc)
    return result


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the stores that this run does not take; see `tests.selection`."""
    if out := left_out(items, config.args):
        config.hook.pytest_deselected(items=out)
        gone = set(map(id, out))
        items[:] = [item for item in items if id(item) not in gone]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests that fork much in a small process."""
    return small.run(pyfuncitem) or None


@pytest.fixture(params=["memory", "sqlite", "directory", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where to open a store; each kind in turn."""
    if request.param == "postgres":
        return reused_address_at(tmp_path)
    urls = {"memory": "memory:", "sqlite": str(tmp_path / "agent.db"), "directory": f"dir:{tmp_path}/agents"}
    return urls[request.param]


@pytest.fixture
def hf(url: str) -> Iterator[Holdfast]:
    """An open handle on each kind of store. Durability is not what these tests are about."""
    with holdfast.open(url, durability="off") as opened:
        yield opened


@pytest.fixture
def open_file(tmp_path: Path) -> Iterator[OpenHandle]:
    """Opens handles on one SQLite file, and closes them in the end."""
    opened: list[Holdfast] = []

    def open_handle(**options: Any) -> Holdfast:
        handle = holdfast.open(tmp_path / "agent.db", **{"durability": "off", **options})
        opened.append(handle)
        return handle

    yield open_handle
    for handle in opened:
        handle.close()
