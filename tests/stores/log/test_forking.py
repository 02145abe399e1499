"""fork() during a call on a directory store: the child gets an error, and the parent continues."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest

from holdfast import forksafe
from holdfast.errors import Closed, StoreError
from holdfast.stores.log import DirectoryStore
from holdfast.testing.contract.build import names_of, saved, texts_of
from holdfast.threads.scan import thread_named
from tests.stores.log.conftest import Open
from tests.stores.sqlite.conftest import finished, forked
from tests.waiting import DEADLINE

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


def save(store: DirectoryStore) -> None:
    saved(store, "later", "x")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forksafe, "_PATIENCE", 0.05)


@pytest.mark.parametrize("lock", ["_writing", "_looking"])
def test_a_child_forked_during_a_call_gets_an_error_and_can_close_the_store(
    store: DirectoryStore, open_store: Open, lock: str
) -> None:
    line = saved(store, "t", "x")

    def work() -> None:
        signal.alarm(int(DEADLINE))
        with pytest.raises(StoreError, match="forked during a call"):
            thread_named(store, "t")
        with pytest.raises(StoreError, match="forked during a call"):
            saved(store, "u", "x")
        finished(forked(lambda: None))
        saved(open_store(), "child", "x")
        store.close()
        store.close()
        with pytest.raises(Closed):
            thread_named(store, "t")

    with getattr(store._locks, lock):
        pid = forked(work)
    finished(pid)
    line.save("y")
    assert names_of(store) == ["child", "t"]
    assert texts_of(store, line.span()) == [["x", "y"]]
    finished(forked(partial(save, store)))


def test_a_signal_handler_that_interrupted_a_write_can_fork(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forking thread itself is in the call, so waiting for the call would never end."""
    line = saved(store, "t", "x")
    children: list[int] = []

    def work() -> None:
        with pytest.raises(StoreError, match="forked during a call"):
            saved(store, "u", "x")

    def handle(number: int, frame: object) -> None:
        children.append(forked(work))

    before = signal.signal(signal.SIGWINCH, handle)
    append = type(store._locks).append

    def interrupted(self: object, *args: object, **kwargs: object) -> None:
        signal.raise_signal(signal.SIGWINCH)
        append(self, *args, **kwargs)  # type: ignore[arg-type]

    try:
        with monkeypatch.context() as patched:
            patched.setattr(type(store._locks), "append", interrupted)
            line.save("y")
    finally:
        signal.signal(signal.SIGWINCH, before)
    assert len(children) == 1
    finished(children[0])
    assert texts_of(store, line.span()) == [["x", "y"]]


def test_a_child_does_not_finish_the_write_of_its_parent(store: DirectoryStore) -> None:
    line = saved(store, "t", "x")
    append = type(store._locks).append

    def in_child() -> None:
        def fork_and_append(self: object, *args: object, **kwargs: object) -> None:
            # The grandchild returns into the interrupted write.
            pid = os.fork()
            if pid:
                finished(pid)
            append(self, *args, **kwargs)  # type: ignore[arg-type]

        type(store._locks).append = fork_and_append  # type: ignore[method-assign]
        me = os.getpid()
        refused = ""
        try:
            line.save("y")
        except StoreError as error:
            refused = str(error)
        assert ("forked during a call" in refused) == (os.getpid() != me)

    finished(forked(in_child))
    again = thread_named(store, "t")
    assert again is not None
    assert again.position.last == 2
