"""What a caller knows of a state: said with markers, it is stored as the plain state would be, and no cell twice."""

from __future__ import annotations

import copy
import random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from holdfast import Unsupported
from holdfast.codec import msgpack
from holdfast.delta.base import Base
from holdfast.delta.hints import Apart, Extended, Kept
from holdfast.delta.load import load_base, state_of
from holdfast.delta.parts import CHUNK_ITEMS, Map, Part, Series
from holdfast.errors import HoldfastError
from holdfast.handle import Holdfast
from holdfast.redaction import Redaction
from holdfast.stores.contract import CheckpointRow, Commit, Position
from holdfast.threads.branches import Placer
from holdfast.threads.metadata import checked_details
from holdfast.threads.scan import checkpoint_at
from tests.cases import for_each
from tests.codec.strategies import identical
from tests.delta.engine import Added, WatchedStore
from tests.selection import tries

DETAILS = checked_details(Redaction(None))


def message(number: int, size: int = 300) -> dict[str, Any]:
    source = random.Random(number)
    words = [f"word{source.randrange(5_000)}" for _ in range(size // 9)]
    return {"role": "user", "content": " ".join(words), "id": number}


class Tree:
    """States saved under any row; knows the base of each."""

    def __init__(self) -> None:
        self.store = WatchedStore()
        self.placer = Placer(Holdfast(self.store).context, "agent")
        self.position: Position | None = None
        self.rows: list[CheckpointRow] = []
        self.bases: list[Base] = []

    def save(self, state: Any, under: int = -1) -> Commit:
        """Under the row of that number; the newest if none is given."""
        row = self.rows[under] if self.rows else None
        base = self.bases[under] if self.rows else None
        position, row, base = self.placer.place(state, DETAILS, expect=self.position, under=row, base=base)
        self.position = position
        self.rows.append(row)
        self.bases.append(base)
        assert self.store.last_commit is not None
        return self.store.last_commit

    def parts(self, at: int = -1) -> dict[str, Part]:
        root = self.bases[at].root
        assert isinstance(root, Map)
        return dict(zip(root.keys, root.parts, strict=True))

    def series(self, key: str, at: int = -1) -> Series:
        part = self.parts(at)[key]
        assert isinstance(part, Series)
        return part

    def cool(self) -> None:
        """Hold what a process would hold that has just read the rows."""
        assert self.position is not None
        number = self.position.thread
        self.bases = [load_base(self.store, number, row) for row in self.rows]

    def stored(self, at: int) -> Any:
        """The state of a row as it is read by one who knows nothing of it."""
        assert self.position is not None
        row = checkpoint_at(self.store, self.position.thread, self.rows[at].seq)
        assert row is not None
        return state_of(self.store, load_base(self.store, self.position.thread, row))


# Items that are stored in every way: within a chunk, as a node of their own, by a shared value.
ITEMS = [
    *[message(number) for number in range(12)],
    *range(6),
    {"wide": [message(number, 200) for number in range(40)]},
    {"long": "text " * 4_000},
    {"deep": {"er": [1, 1.0, True, (1,), None, b"\0"]}},
]


class Edit:
    """One change of a list that is given as what stays at its front and what follows."""

    def __init__(self, under: int, keep: float, items: list[Any], other: bool, cold: bool) -> None:
        self.under = under
        self.keep = keep
        self.items = items
        self.other = other
        self.cold = cold

    def __repr__(self) -> str:
        return f"Edit({self.under}, {self.keep}, {len(self.items)} items, {self.other}, {self.cold})"


items = st.lists(st.sampled_from(ITEMS), max_size=8) | st.integers(20, 80).map(
    lambda count: [message(1_000 + number) for number in range(count)]
)
edits = st.builds(
    Edit,
    under=st.integers(0, 30),
    # Mostly all of it is kept, as when a list is appended to.
    keep=st.sampled_from([1.0, 1.0, 1.0, 0.97, 0.5, 0.0]),
    items=items,
    other=st.booleans(),
    cold=st.sampled_from([False, False, False, True]),
)


def played(changes: list[Edit], *, branched: bool, apart: bool) -> None:
    """Save the same states with markers and without: they are read back equal, and as many cells are stored."""
    marked, plain = Tree(), Tree()
    first = {"list": [message(number) for number in range(5)], "note": {"text": "n" * 3_000, "turn": 0}}
    states: list[dict[str, Any]] = [first]
    marked.save(copy.deepcopy(first))
    plain.save(copy.deepcopy(first))
    cells = size = 0  # how much less was stored with markers than is allowed
    for turn, edit in enumerate(changes, 1):
        under = edit.under % len(states) if branched else len(states) - 1
        if edit.cold:
            marked.cool()
            plain.cool()
        before, parts = states[under], marked.parts(under)
        keep = round(len(before["list"]) * edit.keep)
        note = {"text": "n" * 3_000, "turn": turn} if edit.other else before["note"]
        state = {"list": before["list"][:keep] + edit.items, "note": note}
        said: dict[str, Any] = {"note": note if edit.other else Kept(parts["note"])}
        known = parts["list"]
        said["list"] = Extended(known, keep, edit.items) if isinstance(known, Series) else state["list"]
        if apart:
            state["apart"] = edit.items
            said["apart"] = Apart(edit.items)
        kept = copy.deepcopy(state)
        states.append(kept)
        order = {key: said[key] for key in state}
        with_markers = Added(marked.save(order, under))
        without = Added(plain.save(state, under))
        # Summed up: one of them may store an item a step before the other, which then finds it.
        cells += without.cells - with_markers.cells
        size += without.bytes - with_markers.bytes
        if not apart:
            # A list so short that it would be one value is a list still where it is said to go on.
            cells += len(edit.items)
            # An item that the list has already may be named on its own, in about 20 bytes.
            size += 100 + 20 * len(edit.items)
            assert cells >= 0
            assert size >= 0
    for at, state in enumerate(states):
        assert identical(marked.stored(at), state)
        assert identical(plain.stored(at), state)


@given(st.lists(edits, min_size=1, max_size=8))
@settings(max_examples=tries(60, 25), deadline=None)
def test_on_a_line_markers_store_what_the_plain_state_would(changes: list[Edit]) -> None:
    played(changes, branched=False, apart=False)


@given(st.lists(edits, min_size=1, max_size=8))
@settings(max_examples=tries(60, 25), deadline=None)
def test_on_branches_markers_store_what_the_plain_state_would(changes: list[Edit]) -> None:
    played(changes, branched=True, apart=False)


@given(st.lists(edits, min_size=1, max_size=6), st.booleans())
@settings(max_examples=tries(60, 25), deadline=None)
def test_what_is_apart_is_read_back_as_it_was(changes: list[Edit], branched: bool) -> None:
    played(changes, branched=branched, apart=True)


@for_each("keep", [0, 1, 31, 32, 33, 63, 64, 99, 100])
def test_a_list_may_be_cut_anywhere_and_only_what_follows_is_stored(keep: int) -> None:
    tree = Tree()
    whole = [message(number) for number in range(100)]
    tree.save({"list": whole})
    added = Added(tree.save({"list": Extended(tree.series("list"), keep, [message(500)])}))
    assert tree.stored(-1) == {"list": [*whole[:keep], message(500)]}
    assert added.cells == 1
    assert added.bytes < 800


def test_a_series_that_is_kept_whole_is_the_same_part() -> None:
    tree = Tree()
    tree.save({"list": [message(number) for number in range(100)], "turn": 0})
    known = tree.series("list")
    commit = tree.save({"list": Extended(known, 100, []), "turn": 1})
    assert tree.series("list") is known
    assert Added(commit).cells == 0


def test_items_that_follow_are_compared_with_what_stood_there() -> None:
    """The caller may know less than is true: what is not new after all is not stored again."""
    tree = Tree()
    whole = [message(number) for number in range(100)]
    tree.save({"list": whole})
    assert Added(tree.save({"list": Extended(tree.series("list"), 10, copy.deepcopy(whole[10:]))})).cells == 0
    assert tree.stored(-1) == {"list": whole}


def test_what_is_kept_costs_nothing_whatever_its_size() -> None:
    tree = Tree()
    state: dict[str, Any] = {
        "files": {f"file-{number}": message(number) for number in range(300)},
        "text": "long " * 10_000,
        "small": {"a": 1},
        "turn": 0,
    }
    tree.save(state)
    for turn in range(1, 4):
        said = {key: Kept(part) for key, part in tree.parts().items() if key != "turn"}
        added = Added(tree.save({**said, "turn": turn}))
        assert (added.cells, added.values) == (0, 0)
        assert added.bytes < 400
        assert identical(tree.stored(-1), {**state, "turn": turn})


def test_what_is_apart_becomes_cells_however_small_and_is_found_where_it_turns_up_later() -> None:
    tree = Tree()
    tree.save({"list": [message(number) for number in range(40)], "turn": 0})
    small, large = {"role": "user", "content": "hi"}, message(900, 3_000)
    first = tree.save({**_kept(tree, "list"), "turn": 1, "cells": Apart([small, large])})
    assert sum(cell == msgpack.encode(small) for cell in _cells(first)) == 1
    second = tree.save({"list": Extended(tree.series("list"), 40, [small, large]), "turn": 2})
    assert Added(second).cells == 0
    assert tree.stored(-1)["list"][40:] == [small, large]


def test_an_empty_list_may_be_apart() -> None:
    tree = Tree()
    for _ in range(2):
        tree.save({"list": Apart([])})
        assert tree.stored(-1) == {"list": []}
        tree.cool()


def test_a_large_chunk_of_another_series_is_taken_over_whole() -> None:
    tree = Tree()
    many = [message(number) for number in range(2 * CHUNK_ITEMS)]
    tree.save({"list": many, "turn": 0})
    chunks = tree.series("list").chunks
    assert Added(tree.save({"archive": Apart(many), "turn": 1})).cells == 0
    assert tree.series("archive").chunks == chunks


def test_an_item_is_found_where_it_still_is_when_a_copy_of_it_has_gone() -> None:
    """As when a conversation is sent to tasks, time and again, from the middle of its chunks."""
    tree = Tree()
    many = [message(number) for number in range(70)]
    tree.save({"list": many, "turn": 0})
    for turn in range(1, 6):
        sent = [message(1_000 + turn), *many[5:40]]
        added = Added(tree.save({**_kept(tree, "list"), "turn": turn, "cells": Apart(sent)}))
        assert added.cells == 1
        assert Added(tree.save({**_kept(tree, "list"), "turn": turn})).cells == 0
    assert tree.stored(-1)["list"] == many


def test_a_save_that_is_not_the_newest_opens_a_log_of_its_own() -> None:
    """Two branches that append to one log would overwrite each other."""
    tree = Tree()
    whole = [message(number) for number in range(40)]
    tree.save({"list": whole})
    known = tree.series("list")
    tree.save({"list": Extended(known, 40, [message(100)])})
    tree.save({"list": Extended(known, 40, [message(200)])}, under=0)
    tree.save({"list": Extended(known, 40, []), "cells": Apart([message(300)])}, under=0)
    assert [len(tree.stored(at)["list"]) for at in range(4)] == [40, 41, 41, 40]
    assert tree.stored(1)["list"][40:] == [message(100)]
    assert tree.stored(2)["list"][40:] == [message(200)]
    assert tree.stored(3) == {"list": whole, "cells": [message(300)]}


class Foreign:
    """Nothing that can be stored."""


def test_what_cannot_be_stored_is_named_by_its_path_within_markers() -> None:
    tree = Tree()
    tree.save({"list": [message(number) for number in range(40)], "note": {"a": 1}})
    known, note = tree.series("list"), tree.parts()["note"]
    refused: list[tuple[Any, str]] = [
        ({"list": Extended(known, 40, [1, {"x": Foreign()}]), "note": Kept(note)}, "$.list[41].x"),
        ({"list": Extended(known, 33, [Foreign()])}, "$.list[33]"),
        ({"note": Kept(note), "cells": Apart([1, Foreign()])}, "$.cells[1]"),
        ({"cells": Apart([{"k": Foreign()}])}, "$.cells[0].k"),
        (Extended(known, 7, [Foreign()]), "$[7]"),
    ]
    for state, path in refused:
        with pytest.raises(Unsupported) as failed:
            tree.save(state)
        assert failed.value.path == path
    assert len(tree.rows) == 1
    assert tree.placer.head() is not None


@pytest.mark.parametrize(
    "hide",
    [
        lambda marker: {"plain": {"member": marker}},
        lambda marker: {"plain": [marker]},
        lambda marker: {f"key-{number}": marker if number == 70 else number for number in range(100)},
        lambda marker: {"plain": Apart([{"member": marker}])},
    ],
    ids=["in a dict", "in a list", "in a large state", "in an item"],
)
def test_a_marker_anywhere_else_is_refused(hide: Any) -> None:
    tree = Tree()
    tree.save({"list": [message(number) for number in range(40)]})
    known = tree.series("list")
    for marker in (Kept(known), Extended(known, 1, []), Apart([1])):
        with pytest.raises(Unsupported):
            tree.save(hide(marker))
    with pytest.raises(HoldfastError):
        msgpack.encode(Kept(known))
    assert len(tree.rows) == 1


def _kept(tree: Tree, key: str) -> dict[str, Any]:
    return {key: Kept(tree.parts()[key])}


def _cells(commit: Commit) -> list[bytes]:
    return [cell for run in commit.appends for cell in run.cells]
