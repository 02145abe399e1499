"""A few stored bytes that refer to each other so that the state takes gigabytes: a load ends soon, in little memory.

No size is believed that is only claimed. A state of the user that repeats itself is stored and loaded like any other.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from holdfast.cli.main import main
from holdfast.codec import msgpack
from holdfast.delta import salvage
from holdfast.delta.base import FREE_SIZE
from holdfast.delta.draft import Draft
from holdfast.delta.parts import Kind, LogKind, Map, Part, Series, refs_of
from holdfast.errors import Damaged, TooLarge
from holdfast.exporters import export_jsonl
from holdfast.formats import lines
from holdfast.importers import import_from
from holdfast.stores.contract import Refs
from holdfast.threads.metadata import Details, Meta
from holdfast.threads.save import commit_of, save_of
from holdfast.threads.scan import thread_named
from tests.crash.bounds import held_to, soon
from tests.selection import IN_FULL, tries

SECONDS = 40
MEMORY = 768 << 20
MUCH = 1 << 48
OFTEN = (40, 8) if IN_FULL else (12, 12)  # a partial load reads the more, the more is stored


@pytest.fixture(autouse=True)
def _read_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make test` bounds what a partial load reads more tightly. Without a bound it would read petabytes."""
    if not IN_FULL:
        monkeypatch.setattr(salvage, "_SLACK", 1 << 17)


def maps_of_maps(draft: Draft, times: int, levels: int) -> Part:
    part: Part = draft.unit(msgpack.encode([[]] * 200))
    for _ in range(levels):
        part = Map([f"k{n}" for n in range(times)], [part] * times)
        draft.place(part)
    return part


def lists_of_lists(draft: Draft, times: int, levels: int) -> Part:
    part: Part = draft.unit(msgpack.encode([[]] * 200))
    for _ in range(levels):
        split = draft.split((part,), part.embed, refs_of((part,)))
        part = Series(Kind.LIST, [split] * times, None, 0, [split.spans[0]] * times, {})
    return part


def tables_of_tables(draft: Draft, times: int, levels: int) -> Part:
    item = draft.append(draft.items_log(None), msgpack.encode("x"), b"item")
    spans = [item] * times
    for level in range(levels):
        spans = [draft.append(LogKind.NODE, b"", b"table %d" % level, Refs(tuple(spans)))] * times
    part = Series(Kind.LIST, [], None, levels, spans, {})
    part.size = 5 + 2 * times ** (levels + 1)
    return part


WAYS: dict[str, Callable[[Draft, int, int], Part]] = {
    "maps of maps": maps_of_maps,
    "lists of lists": lists_of_lists,
    "tables of tables": tables_of_tables,
}


def forge(hf: holdfast.Holdfast, way: str, times: int, levels: int, size: int | None) -> None:
    """Save a state that takes times ** levels as much as its cells, with the size that is given, or its own."""
    store = hf.context.store
    draft = Draft(1, None, linear=False, hashing=store.hashing)
    root = Map(["state"], [WAYS[way](draft, times, levels)])
    skeleton, appends = draft.finish(root)
    if size is not None:
        skeleton = replace(skeleton, size=size)
    details = Details(meta=Meta(created_at=1, size=1), step=None, label=None)
    commit, _ = commit_of(
        "forged", details, skeleton, root.refs, store.hashing, expect=None, parent=None, appends=appends
    )
    store.commit(commit)


def follow(hf: holdfast.Holdfast) -> None:
    """Save a sound state after the forged one."""
    store = hf.context.store
    thread = thread_named(store, "forged")
    assert thread is not None
    details = Details(meta=Meta(created_at=2, size=1), step=None, label=None)
    save = save_of(
        "forged",
        {"n": 1},
        details,
        expect=thread.position,
        parent=None,
        base=None,
        size_limit=MUCH,
        hashing=store.hashing,
    )
    store.commit(save.commit)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
@pytest.mark.parametrize(
    ("times", "levels", "size"),
    [(*OFTEN, MUCH), (8, 6, None), (*OFTEN, 1 << 29), (*OFTEN, 1_000)][: tries(4, 2)],
)
def test_a_load_ends_soon_in_little_memory(
    way: str, partial: bool, times: int, levels: int, size: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "a.db"
    with holdfast.open(path, durability="off") as hf:
        try:
            forge(hf, way, times, levels, size)
        except holdfast.HoldfastError:
            return  # a size that no record can have
    assert path.stat().st_size < 200_000
    with soon(SECONDS), held_to(MEMORY), holdfast.open(path, durability="off") as hf:
        with pytest.raises((Damaged, TooLarge)):
            hf.thread("forged").load("@-1", partial=partial)
        with pytest.raises((Damaged, TooLarge)):
            hf.thread("forged").latest()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [MUCH, None, 1 << 29, 1_000][: tries(4, 2)])
@pytest.mark.parametrize("is_head", [True, False])
def test_an_export_of_a_few_bytes_is_refused_soon(
    way: str, size: int | None, is_head: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with holdfast.open(tmp_path / "a.db") as hf:
        hf.thread("sound").save({"n": 1})
        try:
            forge(hf, way, 8, 9, size)
        except holdfast.HoldfastError:
            return
        if not is_head:
            follow(hf)
        with (tmp_path / "a.jsonl").open("wb") as out:
            export_jsonl(hf, out)
    assert (tmp_path / "a.jsonl").stat().st_size < 30_000
    with soon(SECONDS), held_to(MEMORY):
        assert main(["import", "jsonl", str(tmp_path / "a.jsonl"), "--store", str(tmp_path / "b.db")]) == 1
        told = capsys.readouterr().out
        assert "skipped: thread 'forged': the state of checkpoint 1 cannot be loaded" in told
        with holdfast.open(tmp_path / "b.db") as hf:
            assert [info.name for info in hf.threads()] == ["sound"]
            assert hf.verify().ok


def test_a_number_of_commits_that_is_only_claimed_is_not_repeated(tmp_path: Path) -> None:
    """The cells of a dropped thread, of which an export says that it had a thousand million checkpoints."""
    long = [f"message {each} " + "word " * 300 for each in range(3)]
    with holdfast.open(tmp_path / "a.db", durability="off") as hf:
        for n in range(3_000):
            hf.thread("origin").save({"n": n})
        hf.thread("origin").save({"messages": long[:1]})
        hf.thread("origin").save({"messages": long})
        hf.thread("origin").fork("fork")
        hf.thread("origin").drop()
        with (tmp_path / "a.jsonl").open("wb") as out:
            export_jsonl(hf, out)
    path = tmp_path / "a.jsonl"
    assert path.stat().st_size < 20_000
    for last in (3_002, 1_000_000_000):
        path.write_bytes(claiming(path.read_bytes(), last=last))
        store = tmp_path / f"{last}.db"
        with soon(SECONDS), holdfast.open(store) as hf:
            report = import_from(hf, "jsonl", str(path))
            assert report.ok, report
            assert import_from(hf, "jsonl", str(path)).ok
            assert hf.verify().ok
            latest = hf.thread("fork").latest()
            assert latest is not None
            assert latest.state == {"messages": long}


def claiming(data: bytes, *, last: int) -> bytes:
    """An export in which the dropped thread says that it had so many checkpoints."""
    found = b""
    for line in data.splitlines(keepends=True):
        record = json.loads(line)
        del record["crc"]
        if record["t"] == "end" and "at" in record and not record["at"]["count"]:
            record["at"]["last"] = last
            found += lines.reseal(json.dumps(record, separators=(",", ":")).encode())
        else:
            found += line
    return found


def repeated_rows() -> Any:
    return {"rows": [{"name": "zero", "value": 0, "note": "the same in every row " * 20}] * 40_000}


def repeated_maps() -> Any:
    part: Any = {"text": "word " * 600, "n": 1}
    for _ in range(3):
        part = {f"k{n}": part for n in range(18)}
    return part


def repeated_texts() -> Any:
    return [{"text": "word " * 6_000, "n": 1}] * 600


@pytest.mark.parametrize("make", [repeated_rows, repeated_maps, repeated_texts])
def test_a_state_of_the_user_that_repeats_itself_is_loaded(make: Callable[[], Any], tmp_path: Path) -> None:
    state = make()
    assert len(msgpack.encode(state)) > FREE_SIZE
    with holdfast.open(tmp_path / "a.db", durability="off") as hf:
        hf.thread("t").save({"state": state})
        hf.thread("t").save({"state": state, "n": 1})
    with holdfast.open(tmp_path / "a.db", durability="off") as hf:
        assert hf.thread("t").load("@1").state == {"state": state}
        latest = hf.thread("t").latest()
        assert latest is not None
        assert latest.state == {"state": state, "n": 1}


def test_a_state_over_the_limit_is_not_read(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "a.db") as hf:
        hf.thread("t").save({"text": "x" * 50_000})
    with holdfast.open(tmp_path / "a.db", max_state_bytes=40_000) as hf:
        with pytest.raises(TooLarge, match="max_state_bytes"):
            hf.thread("t").latest()
        with pytest.raises(TooLarge, match="max_state_bytes"):
            hf.thread("t").load("@1")
        hf.thread("t").save({"text": "short"})
        assert hf.thread("t").latest() is not None
