"""What lies in the folder: readable, private, and opened only if it is a store."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import InvalidArgument, NewerFormat, NotAStore, OutcomeUnknown, ReadOnly, StoreError, StoreFull
from holdfast.formats.lines import reseal
from holdfast.stores.log import DirectoryStore, disk
from holdfast.testing.contract.build import effect, everything, journaled, running, saved, texts_of, value
from holdfast.threads.scan import thread_named
from tests.covers import covers
from tests.stores.log.conftest import Open, log_of, records_of
from tests.stores.sqlite.conftest import NOBODY, finished, forked


@covers("ares/CheckpointManager.save.readable", "continuum/layout of text")
@covers("smooth/FileCheckpointStore.save.creates_file")
def test_messages_are_readable_as_they_are(path: Path) -> None:
    message = {"role": "user", "content": "Grüße, 世界! " * 300}
    with holdfast.open(f"dir:{path}") as hf:
        hf.thread("customer-42").save({"messages": [message, {"role": "assistant", "content": "Hi " * 300}]})
    records = records_of(log_of(path, "customer-42"))
    assert [record["t"] for record in records] == ["thread", "cell", "cell", "checkpoint", "end"]
    assert records[0]["name"] == "customer-42"
    assert records[1]["cell"] == message
    assert records[3]["skeleton"][-1] == {"$packed": {"messages": {"$series": [0, 0, 1, 2]}}}
    assert "Grüße, 世界!".encode() in log_of(path, "customer-42").read_bytes()


def test_a_journal_is_readable_while_an_agent_works(store: DirectoryStore, path: Path) -> None:
    line, row = running(store)
    journaled(store, line.number, row.fence, [effect(name="send_mail", result=b"\xa4sent", error="half \ud800")])
    [entry] = [record for record in records_of(log_of(path, "a")) if record["t"] == "entry"]
    assert (entry["entry"]["name"], entry["result"], entry["status"]) == ("send_mail", "sent", "done")
    [back] = store.entries(line.number, after=0, limit=1)
    assert (back.result, back.error) == (b"\xa4sent", "half \ud800")


def test_nobody_else_may_read_it(open_store: Open, path: Path) -> None:
    store = open_store(durability="full")
    saved(store, "a", "x").save("y", blobs=[value(b"one", b"two"), value(b"three")])
    store.drop(saved(store, "b", "x").number)
    for found in [path, *path.rglob("*")]:
        assert stat.S_IMODE(found.stat().st_mode) == (0o700 if found.is_dir() else 0o600), found


def test_a_value_is_a_file_of_its_own_bytes(store: DirectoryStore, path: Path) -> None:
    image = os.urandom(50_000)
    saved(store, "a", "x").save("y", blobs=[value(image)])
    [file] = [found for found in (path / "default" / "blobs").rglob("*") if found.is_file()]
    assert file.read_bytes() == image
    assert file.name == value(image).digest.hex()
    assert file.parent.name == file.name[:2]


@covers("ares/CheckpointManager.new", "smooth/FileCheckpointStore.new", "smooth/FileCheckpointStore.nested_agent_dirs")
@covers("smooth/FileCheckpointStore.missing_dir_created", "continuum/layout by session")
@covers("continuum/CheckpointWriter.new")
def test_folders_above_are_made(tmp_path: Path) -> None:
    with holdfast.open(f"dir:{tmp_path}/some/where/deep", namespace="Tenant/1") as hf:
        hf.thread("t").save({})
    assert (tmp_path / "some/where/deep/%54enant%2f1/threads/t/log.jsonl").exists()


# -- opening ----------------------------------------------------------------------------------------------------------


def opened(path: Path) -> DirectoryStore:
    return DirectoryStore(path, namespace="default", durability="off")


def test_an_empty_folder_becomes_a_store(path: Path) -> None:
    path.mkdir()
    (path / "holdfast.json.new").write_text("cut off")
    opened(path).close()
    assert (path / "holdfast.json").read_text() == '{"holdfast":"directory","format":1}\n'


def test_a_folder_of_something_else_is_left_as_it_was(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("mine")
    with pytest.raises(NotAStore, match="not empty"):
        opened(path)
    assert [found.name for found in path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "content", ["{}", "[", '{"holdfast":"other","format":1}', '{"holdfast":"directory","format":0}']
)
def test_a_marker_that_is_not_ours(path: Path, content: str) -> None:
    path.mkdir()
    (path / "holdfast.json").write_text(content)
    with pytest.raises(NotAStore):
        opened(path)
    assert (path / "holdfast.json").read_text() == content


@covers("ares/CheckpointManager.new.file")
def test_a_file_where_a_folder_should_be(path: Path) -> None:
    path.write_text("mine")
    with pytest.raises(NotAStore, match="file"):
        opened(path)
    with pytest.raises(NotAStore, match="file"):
        opened(path / "below")
    assert path.read_text() == "mine"


@covers("G4")
def test_a_newer_format(path: Path) -> None:
    path.mkdir()
    (path / "holdfast.json").write_text('{"holdfast":"directory","format":2}')
    with pytest.raises(NewerFormat, match="Upgrade"):
        opened(path)


def test_a_thread_of_a_newer_format_is_told(store: DirectoryStore, open_store: Open, path: Path) -> None:
    saved(store, "a", "x")
    log = log_of(path, "a")
    first, rest = log.read_bytes().split(b"\n", 1)
    newer = reseal(b"{" + first[18:].replace(b'"format":1', b'"format":2'))
    log.write_bytes(newer + rest)
    with pytest.raises(NewerFormat):
        thread_named(open_store(), "a")


def test_threads_that_make_the_same_store_at_once_all_have_it(path: Path) -> None:
    for n in range(10):
        barrier = threading.Barrier(8)

        def make(at: Path = path / str(n), barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            DirectoryStore(at, namespace="default", durability="full").close()

        with ThreadPoolExecutor(8) as pool:
            for made in [pool.submit(make) for _ in range(8)]:
                made.result()
        assert os.listdir(path / str(n)) == ["holdfast.json"]


def test_a_store_whose_making_could_not_be_synced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(OutcomeUnknown, match="store"):
            DirectoryStore(path, namespace="default", durability="full")
    opened(path).close()


@pytest.mark.parametrize("url", ["dir:", "dir://host/x", "dir:a\0b"])
def test_addresses_that_name_no_folder(url: str) -> None:
    with pytest.raises(InvalidArgument, match="dir:"):
        holdfast.open(url)


# -- a store that may not be written ----------------------------------------------------------------------------------


def test_a_store_that_may_not_be_written_is_read(path: Path) -> None:
    with closing(opened(path)) as store:
        line = saved(store, "a", "x", "y")
        before = everything(store)
    make_read_only(path)

    def read() -> None:
        with closing(opened(path)) as reader:
            assert everything(reader) == before
            assert texts_of(reader, line.span()) == [["x", "y"]]
            assert list(reader.check()) == []
            line.store = reader
            with pytest.raises(ReadOnly):
                line.save("z")
            with pytest.raises(ReadOnly):
                saved(reader, "new", "x")

    try:
        finished(forked(read, user=NOBODY))
    finally:
        make_writable(path)


def test_a_store_that_cannot_be_made(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)

    def make() -> None:
        with pytest.raises(ReadOnly, match="does not exist"):
            opened(folder / "store")

    open_way_to(tmp_path)
    finished(forked(make, user=NOBODY))


def make_read_only(path: Path) -> None:
    open_way_to(path.parent)
    for found in [path, *path.rglob("*")]:
        found.chmod(0o555 if found.is_dir() else 0o444)


def make_writable(path: Path) -> None:
    for found in [path, *path.rglob("*")]:
        found.chmod(0o755)


def open_way_to(path: Path) -> None:
    """Folders of pytest are closed to others. Only rights to read are added: one of the parents is /dev/shm or /tmp."""
    for folder in [path, *path.parents]:
        mode = folder.stat().st_mode
        if mode & 0o055 != 0o055:
            folder.chmod(mode | 0o055)


# -- a disk that fails -----------------------------------------------------------------------------------------------


@covers("continuum/ErrorCategory.Resource")
def test_a_full_disk_changes_nothing(store: DirectoryStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = saved(store, "a", "x")
    log = log_of(path, "a")
    before = log.read_bytes()

    def half(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_all", half)
        with pytest.raises(StoreFull):
            line.save("y")
    assert log.read_bytes() == before
    line.save("y")
    assert texts_of(store, line.span()) == [["x", "y"]]


def test_a_write_that_writes_nothing_is_not_tried_for_ever(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = saved(store, "a", "x")

    def nothing(descriptor: int, data: bytes) -> int:
        return 0

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", nothing)
        with pytest.raises(StoreError):
            line.save("y")
    line.save("y")
    assert texts_of(store, line.span()) == [["x", "y"]]


@covers("A8", "A18")
def test_a_sync_that_fails_leaves_the_outcome_unknown(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(durability="full")
    line = saved(store, "a", "x")

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(disk, "_fdatasync", fail)
        with pytest.raises(OutcomeUnknown):
            line.save("y")
    with pytest.raises(OutcomeUnknown):
        thread_named(store, "a")
    again = thread_named(open_store(), "a")
    assert again is not None
    assert again.position.head in (1, 2)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EMFILE])
def test_a_folder_that_cannot_be_opened_to_be_synced_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    with holdfast.open(f"dir:{tmp_path / 'store'}") as hf:
        hf.thread("a").save({"n": 1})
        real = os.open

        def refused(path: str, flags: int, *more: int, **named: int) -> int:
            if flags & os.O_DIRECTORY and str(path).endswith("b"):
                raise OSError(code, os.strerror(code), path)
            return real(path, flags, *more, **named)

        monkeypatch.setattr(os, "open", refused)
        with pytest.raises(StoreError):
            hf.thread("b").save({"n": 1})
        monkeypatch.undo()
        assert [info.name for info in hf.threads()] == ["a"]
        assert hf.thread("b").save({"n": 2}).seq == 1
    with holdfast.open(f"dir:{tmp_path / 'store'}") as hf:
        latest = hf.thread("b").latest()
        assert latest is not None
        assert latest.state == {"n": 2}


def test_a_directory_needs_no_client_of_buckets(path: Path) -> None:
    code = f"import sys; sys.modules['obstore'] = None; import holdfast; holdfast.open('dir:{path}').close()"
    subprocess.run([sys.executable, "-c", code], check=True)
