"""JSON lines, field by field: whatever a record of a store holds comes back, and the format says what it is."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Holdfast, Run, Usage
from holdfast.exporters import export_jsonl
from holdfast.importers import import_from
from holdfast.runs.drivers import drive
from holdfast.stores.contract import Summary
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads.branches import named
from holdfast.threads.metadata import Meta
from holdfast.threads.scan import thread_named
from tests.covers import covers
from tests.threads.wholes import KINDS, address

FORMAT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "format.md"


class Again:
    """A reply of a registered class."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Again)

    def __hash__(self) -> int:
        return 1


holdfast.codec.register(Again, lambda _: "again", lambda _: Again())


@holdfast.tool(effect="irreversible")
def pay(amount: int) -> int:
    return amount


@holdfast.tool(effect="irreversible")
def fail(amount: int) -> None:
    raise RuntimeError("nobody knows")


@holdfast.tool(effect="read")
def look(at: int) -> int:
    return at


@holdfast.tool(effect="irreversible", identity=("letter",))
def send(letter: str) -> str:
    return letter


class Graph:
    """A graph whose first checkpoint calls a tool."""

    place = "checkpoint-1"

    def nearest(self, places: Collection[str]) -> str | None:
        return None


@holdfast.tool(effect="irreversible")
def pay_twice(amount: int) -> None:
    run = holdfast.current_run()
    assert isinstance(run, Run)
    for part in ("first", "second"):
        run.tool(pay, {"amount": amount}, key=part)


TOOLS: list[Callable[..., Any]] = [pay, fail, look, send, pay_twice]


def opened(kind: str, folder: Path, name: str) -> Holdfast:
    return holdfast.open(address(kind, folder, name), durability="off", tools=TOOLS)


def fill(hf: Holdfast) -> None:
    """Something in every field there is."""
    state = {"bytes": b"\x00", "tuple": (1, 2), "span": timedelta(1), "set": {1, 2}}
    usage = Usage(input=3, output=4, cost=0.5, currency="EUR")
    told: dict[str, Any] = {"metadata": {"k": (1,)}, "agent": "clerk", "reason": "why", "status": "idle"}
    hf.thread("full").save(state, step=5, label="one", tags=["a"], usage=usage, resume_hint="go on", **told)
    hf.thread("full").save({"n": 2})
    named(hf.context, "full", "@-1", label="two", tags=["x"])
    full = hf.thread("full")
    full.latest()
    full.rewind("@5")
    full.save({"n": 3})
    full.rewind("@two")
    full.rewind("@5")
    _work(hf)
    with hf.run("asks", start={}) as run:
        for _ in run.steps():
            run.progress(3, 10, "so far")
            run.wait("now?", {"p": 1}, timeout=99)
    hf.answer("asks", "early", 5, by="ann", early=True)
    hf.answer("asks", "now?", {"yes": (1,)}, by="bob")
    with hf.run("sends", start={}) as run:
        run.tool(send, {"letter": "a"})
        run.tool(pay_twice, {"amount": 5})
        drive(run.core.calls().tool(pay, {"amount": 7}, "in a graph", caller=None, lineage=Graph()))
    [act] = hf.acts()
    hf.release(act, by="ann", reason="it was lost")
    hf.submit("handler", "queued", start={"n": 1}, version="v")
    hf.submit("handler", "cancelled", start={"n": 1})
    hf.cancel("cancelled", "not now")
    with hf.run("parent", start={}) as run:
        for _ in run.steps():
            with run.child("child", start={"n": 1}) as child:
                for _ in child.steps():
                    child.model(lambda: 3)
                    child.finish(4)
            run.wait("what then?")
    with hf.run("outside", start={}, policy=holdfast.EveryN(1)) as run:
        run.model(lambda: 3)
        for step in run.steps():
            run.model(lambda: 4)
            if step == 2:
                break
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(run.wait, name) for name in ("one?", "two?")]
        asked[0].result()


def _work(hf: Holdfast) -> None:
    """A run that was rewound, with its deeds given back, one in doubt, and a fork that takes what was done there."""
    with hf.run("works", start={"n": 0}, agent="clerk", policy=holdfast.EveryN(1)) as run:
        for step in run.steps():
            run.model(lambda: {"usage": {"input_tokens": 4, "output_tokens": 2}})
            run.tool(pay, {"amount": run.tool(look, {"at": step})})
            run.state["n"] = step
            if step == 3:
                break
    works = hf.thread("works")
    works.latest()
    works.rewind("@1", past_effects=True)
    with hf.run("works", policy=holdfast.EveryN(1)) as run:
        for step in run.steps():
            run.model(Again)
            run.tool(pay, {"amount": step})
            if step == 3:
                run.tool(fail, {"amount": 1})
    hf.thread("works").fork("fork", at="@2")
    with contextlib.suppress(holdfast.HoldfastError), hf.run("fork", effects="recorded") as run:
        for step in run.steps():
            run.model(lambda: 5)
            run.tool(pay, {"amount": step})
            break


def records(hf: Holdfast) -> dict[str, Any]:
    """Every record of a store, without the numbers that it gives out itself, and digests, which those are part of."""
    store = hf.context.store
    rows = {info.name: thread_named(store, info.name) for info in hf.threads()}
    names = {row.position.thread: name for name, row in rows.items() if row is not None}
    found: dict[str, Any] = {}
    for name, row in rows.items():
        assert row is not None
        run = store.run(row.position.thread)
        thread = hf.thread(name)
        found[name] = {
            "place": (row.position.last, row.position.head, row.position.move, row.count, row.summary),
            # When a lease began is told by a clock that runs on one machine only.
            "run": None if run is None else replace(run, thread=0, lease_first=0),
            "entries": [
                (replace(each, matches_thread=0), names.get(each.matches_thread))
                for each in store.entries(row.position.thread, after=0, limit=999)
            ],
            "checkpoints": [replace(thread.load(each.id), digest="") for each in thread.history()],
        }
    return found


@covers("ares/restore_checkpoint", "ares/test_restore_preserves_all_checkpoint_fields")
@covers("smooth/FileCheckpointStore.load_roundtrip", "smooth/Checkpoint.from_bytes", "cortex/Checkpoint serialized")
@pytest.mark.parametrize(("kind", "target"), list(zip(KINDS, (*KINDS[1:], KINDS[0]), strict=True)))
def test_every_field_comes_back(kind: str, target: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path, "one") as hf, opened(target, tmp_path, "other") as new:
        fill(hf)
        out = io.BytesIO()
        assert export_jsonl(hf, out).ok
        (tmp_path / "it.jsonl").write_bytes(out.getvalue())
        assert import_from(new, "jsonl", str(tmp_path / "it.jsonl")).ok
        before, after = records(hf), records(new)
        assert list(before) == list(after)
        for name, told in before.items():
            for what, record in told.items():
                assert record == after[name][what], f"{what} of {name}"
        assert list(new.waiting()) == list(hf.waiting())


def test_what_is_compared_has_something_in_every_field(tmp_path: Path) -> None:
    """Or it would come back because there is nothing to lose."""
    with opened("memory", tmp_path, "one") as hf:
        fill(hf)
        store = hf.context.store
        entries: list[Entry] = []
        for info in hf.threads():
            row = thread_named(store, info.name)
            assert row is not None
            entries += store.entries(row.position.thread, after=0, limit=999)
    filled = {
        field.name
        for field in msgspec.structs.fields(Entry)
        if any(getattr(e, field.name) != field.default for e in entries)
    }
    # Budgets, redaction, settled calls, retries, acts, functions that run and encryption are of other tests.
    assert {field.name for field in msgspec.structs.fields(Entry)} - filled <= {
        "again",
        "heard",
        "held",
        "idempotency_key",
        "owner",
        "redacted",
        "sealed",
        "settled",
        "tries",
        "valid_after",
        "usage",
    }


@pytest.mark.parametrize("record", [Summary, Meta, Entry, RunRow], ids=lambda record: record.__name__)
def test_the_format_names_every_member(record: type[msgspec.Struct]) -> None:
    table = FORMAT.read_text("utf-8").partition("| record | members |")[2].partition("\n\n")[0]
    line = {"Summary": "summary", "Meta": "meta", "Entry": "entry", "RunRow": "run"}[record.__name__]
    (told,) = [each for each in table.splitlines() if each.startswith(f"| `{line}` |")]
    # Of an entry and a run the store's own numbers are left out, and what encryption adds.
    own = {"sealed", "number", "thread"}
    fields = [field for field in msgspec.structs.fields(record) if field.name not in own]
    names = ["topic" if field.name == "topic" else field.encode_name for field in fields]
    assert [name for name in names if f"`{name}`" not in told] == []


def test_lines_are_json_that_others_can_read() -> None:
    out = io.BytesIO()
    with holdfast.open("memory:") as hf:
        state = {"messages": [{"role": "user", "content": f"Hello {n} " * 50} for n in range(40)]}
        hf.thread("t").save(state, label="x")
        export_jsonl(hf, out)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [lines[0]["t"], lines[0]["format"]] == ["export", 1]
    assert lines[1]["name"] == "t"
    cells = [line["cell"] for line in lines if line["t"] == "cell"]
    assert {"role": "user", "content": "Hello 7 " * 50} in cells
    assert next(line["label"] for line in lines if line["t"] == "checkpoint") == "x"
    assert (lines[-1]["t"], lines[-1]["exported"]) == ("end", [1, 1])
