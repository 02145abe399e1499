"""Defects C1 to C11, which Holdfast must not have: identity, names, isolation."""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import AlreadyExists, Holdfast, HoldfastError, InvalidArgument, NotFound, StoreError
from tests.parity.defects_scene import (
    WallClock,
    content,
    everywhere,
    fill,
    forge_lines,
    latest,
    log_of,
    on_disk,
    opened,
    place,
    seqs,
    state_at,
    with_a_fleet,
)

DEVICES = ("CON", "con", "NUL", "nul.txt", "AUX", "COM1", "LPT1.log", "PRN")
HOSTILE = (
    *("../up", "../../../../tmp/up", "/absolute", "a/b", "a\\b", "C:\\x", "..", ".", ".hidden", "a\0b", "~", "~root"),
    *(*DEVICES, "Name", "name", "NAME", "straße", "STRASSE", "e\u0301", "\u00e9", "end.", "end ", " end", "-rf"),
    *("x" * 5_000, "é" * 3_000, "%2e%2e", "a%", "line\nbreak", "\u202e", "'; DROP TABLE thread; --", "${HOME}"),
)
MARKED = (
    "latest",
    "latest-run",
    "t_latest",
    "latest.json",
    "namespace.jsonl",
    "log.jsonl",
    "lock-gate",
    "holdfast.json",
)
MARKED_KEYS = (":snapshots:", "$cell", "$ref", "$series", "crc", "_checksum", "_version", "__type__", "t", "end", "")


@everywhere
def test_c1_a_name_that_begins_like_another_is_another(hf: Holdfast) -> None:
    names = ["sess1", "sess1_2", "sess1_2_3", "sess", "sess1/2", "sess1 "]
    for n, name in enumerate(names, 1):
        fill(hf.thread(name), n)
    for n, name in enumerate(names, 1):
        assert seqs(hf.thread(name)) == list(range(n, 0, -1))
    hf.thread("sess1").drop()
    assert sorted(info.name for info in hf.threads()) == sorted(set(names) - {"sess1"})
    for n, name in enumerate(names[1:], 2):
        assert latest(hf.thread(name)).state == state_at(n)


@everywhere
def test_c2_no_name_means_anything_to_the_store(url: str) -> None:
    hf = opened(url)
    for name in MARKED:
        fill(hf.thread(name), 2)
    if url != "memory:":
        hf.close()
        hf = opened(url)
    assert [info.name for info in hf.threads()] == sorted(MARKED)
    for name in MARKED:
        assert seqs(hf.thread(name)) == [2, 1], name
        assert latest(hf.thread(name)).state == state_at(2)
    hf.close()


@with_a_fleet
def test_c3_any_name_is_a_thread_of_its_own_and_no_path(url: str, tmp_path: Path) -> None:
    above = {path.name for path in tmp_path.parent.iterdir()}
    with opened(url) as hf:
        for name in HOSTILE:
            hf.thread(name).save({"name": name})
    if url != "memory:":
        with opened(url) as hf:
            assert sorted(info.name for info in hf.threads()) == sorted(HOSTILE)
            for name in HOSTILE:
                assert latest(hf.thread(name)).state == {"name": name}
    with opened(url) as hf, pytest.raises(InvalidArgument):
        hf.thread("")
    assert {path.name for path in tmp_path.parent.iterdir()} == above
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} <= {"agent.db", "agents"}


def test_c3_a_folder_has_a_name_that_any_file_system_takes(tmp_path: Path) -> None:
    with opened(f"dir:{tmp_path}/agents") as hf:
        for name in HOSTILE:
            hf.thread(name).save({"name": name})
    folders = [path.name for path in (tmp_path / "agents" / "default" / "threads").iterdir()]
    assert len({name.casefold() for name in folders}) == len(HOSTILE)
    devices = {"con", "nul", "aux", "prn", "com1", "lpt1"}
    for name in folders:
        assert len(name) < 200
        assert name.isascii()
        assert not set(name) & set('/\\:*?"<>|\0\n ')
        assert name.partition(".")[0] not in devices
        assert not name.endswith(".")


def test_c4_nothing_that_is_stored_is_followed_as_a_path(tmp_path: Path) -> None:
    url = f"dir:{tmp_path}/agents"
    secret = "the secret of somebody else " * 2_000
    (tmp_path / "secret").write_text(secret)
    with opened(url) as hf:
        hf.thread("t").save({"large": "x" * 60_000})
    [value] = [path for path in (place(url) / "default" / "values").rglob("*") if path.is_file()]
    for forged in (str(tmp_path / "secret"), "../../../../secret", f"{value.name[:2]}/../../../../../secret"):
        kept = log_of(url, "t").read_bytes()
        assert forge_lines(log_of(url, "t"), value.name, forged)
        with opened(url) as hf, pytest.raises(HoldfastError) as told:
            hf.thread("t").latest()
        assert "somebody else" not in str(told.value)
        log_of(url, "t").write_bytes(kept)
    with opened(url) as hf, pytest.raises((NotFound, InvalidArgument)):
        hf.thread("t").load("../../secret")


@everywhere
def test_c5_no_id_is_a_pattern(url: str, tmp_path: Path) -> None:
    strange = tmp_path / "a[b]*?"
    strange.mkdir()
    where = url if url == "memory:" else f"dir:{strange}/s" if url.startswith("dir:") else str(strange / "s[1].db")
    with opened(where) as hf:
        names = ["a*", "a?", "[ab]", "a%", "a_", "ab", "a"]
        for n, name in enumerate(names, 1):
            fill(hf.thread(name), n)
        for name in names:
            assert {info.name for info in hf.threads(prefix=name)} == {each for each in names if each.startswith(name)}
        thread = hf.thread("ab")
        for pattern in ("*", "????", "[0-9]*", "%", "____", "0%"):
            with pytest.raises((NotFound, InvalidArgument)):
                thread.load(pattern)
            with pytest.raises((NotFound, InvalidArgument)):
                thread.delete(pattern)
            assert list(thread.history(label=pattern)) == []
        hf.thread("a*").drop()
        assert {info.name for info in hf.threads()} == set(names) - {"a*"}
        assert thread.count() == 6


@everywhere
def test_c6_ids_are_128_bits_and_differ(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    WallClock(monkeypatch)  # one moment for all of them
    ids = [hf.thread(f"thread {n}").save({"n": n}).id for n in range(200)]
    ids += [hf.thread("thread 0").save({"n": n}, expect=holdfast.ANY).id for n in range(100)]
    assert len(set(ids)) == 300
    assert {uuid.UUID(id).version for id in ids} == {7}
    assert len({id[:-8] for id in ids}) == 300  # also without the seq, which their ends are


@everywhere
def test_c7_an_id_is_of_one_checkpoint_of_one_thread(hf: Holdfast) -> None:
    a, b = hf.thread("a"), hf.thread("b")
    made = [a.save({"same": 1}), a.save({"same": 1}), b.save({"same": 1})]
    assert len({checkpoint.id for checkpoint in made}) == 3
    assert [checkpoint.thread for checkpoint in made] == ["a", "a", "b"]
    assert seqs(a) == [2, 1]
    with pytest.raises(AlreadyExists):
        a.save({"same": 1}, expect=holdfast.NEW)
    for verb in (b.load, b.delete, b.rewind):
        for ref in (made[0], made[0].id):
            with pytest.raises(NotFound):
                verb(ref)
    assert a.count() == 2


@with_a_fleet
def test_c8_no_save_changes_what_is_stored(hf: Holdfast) -> None:
    thread = hf.thread("t")
    first = thread.save({"n": 1}, label="first", tags=["a"], metadata={"k": 1}, usage={"input": 1})
    thread.save({"n": 2}, label="first", tags=["b"], metadata={"k": 2})
    thread.rewind(first)
    thread.save({"n": 3}, step=1, label="first")
    fork = thread.fork("fork", at=first)
    fork.save({"n": 4}, metadata={"k": 4})
    loaded = thread.load(first)
    assert loaded.state == {"n": 1}
    assert list(thread.history())[-1] == first
    assert (loaded.digest, loaded.metadata, loaded.tags) == (first.digest, {"k": 1}, ("a",))
    assert thread.count() == 3


@on_disk
def test_c9_an_id_finds_nothing_outside_of_its_thread_and_namespace(url: str) -> None:
    with opened(url) as hf, opened(url, namespace="another") as other:
        made = fill(hf.thread("t"), 2)
        fill(hf.thread("u"), 1)
        other.thread("t").save({"theirs": 1})
        for thread in (other.thread("t"), hf.thread("u")):
            for ref in (made[1], made[1].id, made[1].id[:-4], made[1].id[9:]):
                with pytest.raises((NotFound, InvalidArgument)):
                    thread.load(ref)
        for change in (other.thread("t").rewind, other.thread("t").delete):
            with pytest.raises(NotFound):
                change(made[0])
        with pytest.raises(NotFound):
            other.thread("t").fork("stolen", at=made[0])
        with pytest.raises(NotFound):
            other.diff("u@-1", "t@-1")
        assert [info.name for info in other.threads()] == ["t"]
        assert latest(hf.thread("t")).state == state_at(2)


@on_disk
def test_c10_files_are_their_owners_and_go_nowhere_else(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)
    try:
        with opened(url) as hf:
            hf.thread("t").save({"large": "x" * 60_000})
            made = [path for path in tmp_path.rglob("*") if path != tmp_path]
            modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in made}
    finally:
        os.umask(before)
    assert modes <= {(True, 0o700), (False, 0o600)}
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    (tmp_path / "file").write_text("no folder")
    for variable in ("XDG_DATA_HOME", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "file" / "data"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(StoreError):
        holdfast.open()


@on_disk
def test_c10_nothing_is_written_through_a_link_in_a_store(url: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("somebody else's")
    with opened(url) as hf:
        fill(hf.thread("t"), 2)
    links = {
        Path(f"{url}-gate"): outside / "file",
        Path(f"{url}-turn"): outside / "file",
    }
    if url.startswith("dir:"):
        threads = place(url) / "default" / "threads"
        links = {
            threads / "linked": outside,
            threads / "t" / "log.jsonl": outside / "log.jsonl",
            place(url) / "default" / "lock-gate": outside / "file",
            place(url) / "default" / "namespace.jsonl.new": outside / "file",
        }
        (outside / "log.jsonl").write_bytes(log_of(url, "t").read_bytes())
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    for link, target in links.items():
        kept = link.read_bytes() if link.exists() else None
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        if link.name == "namespace.jsonl.new":
            link.with_suffix("").unlink()  # so that it is made anew
        with pytest.raises(StoreError):
            save_to(url, "t", "linked")
        assert {path.name: path.read_bytes() for path in outside.iterdir()} == before
        link.unlink()
        if kept is not None:
            link.write_bytes(kept)
    with opened(url) as hf:
        assert latest(hf.thread("t")).seq >= 2


def save_to(url: str, *names: str) -> None:
    with opened(url) as hf:
        for name in names:
            hf.thread(name).save({"n": 1}, expect=holdfast.ANY)


@everywhere
def test_c11_keys_and_names_are_compared_whole(url: str) -> None:
    state: dict[str, Any] = {key: {key: [key, {key: 1}]} for key in MARKED_KEYS}
    with opened(url) as hf:
        hf.thread("t").save(state, metadata={key: key for key in MARKED_KEYS})
        hf.thread("agent 10").save({"about": "agent 1"})
        with hf.run("agent 1", start={"about": "agent 10"}) as run:
            run.model(lambda: "agent 10 asks")
        assert latest(hf.thread("t")).state == state
        assert latest(hf.thread("t")).metadata == {key: key for key in MARKED_KEYS}
        assert [effect.result for effect in hf.effects("agent 1")] == ["agent 10 asks"]
        assert hf.effects("agent 10") == []
    if url != "memory:":
        with opened(url) as hf:
            assert latest(hf.thread("t")).state == state
            assert content(url)
