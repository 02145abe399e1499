"""Schema versions: states stored by an older program come back as this one expects them, or not at all."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any

import pytest

import holdfast
from holdfast import Checkpoint, Holdfast, Incompatible, InvalidArgument
from tests.conftest import OpenHandle
from tests.covers import covers


def latest(thread: holdfast.Thread) -> Checkpoint:
    found = thread.latest()
    assert found is not None
    return found


def rename(state: Any) -> Any:
    """From version 1, {"log": …}, to version 2, {"messages": …}. In place, which must hurt nobody."""
    state["messages"] = state.pop("log")
    return state


def trail(version: int) -> Any:
    """A migration that leaves its version in the state."""

    def migrate(state: list[int]) -> list[int]:
        return [*state, version]

    return migrate


class TestRegistering:
    def test_the_function_is_given_back(self, hf: Holdfast) -> None:
        assert hf.migration(1, 2)(rename) is rename
        assert hf.aio.migration(2, 3)(rename) is rename

    @pytest.mark.parametrize(
        ("from_", "to"), [(1, 1), (2, 1), (-1, 1), (True, 2), (0, True), ("1", "2"), (1, 2.0), (None, 1), (1, 2**63)]
    )
    def test_it_leads_from_a_version_to_a_higher_one(self, hf: Holdfast, from_: Any, to: Any) -> None:
        with pytest.raises(InvalidArgument, match="schema version"):
            hf.migration(from_, to)

    def test_there_is_one_for_a_pair_of_versions(self, hf: Holdfast) -> None:
        hf.migration(1, 2)(rename)
        with pytest.raises(InvalidArgument, match="from schema version 1 to 2"):
            hf.migration(1, 2)(rename)
        hf.migration(1, 3)(rename)

    def test_it_is_a_function(self, hf: Holdfast) -> None:
        with pytest.raises(InvalidArgument, match="function"):
            hf.migration(1, 2)({})  # type: ignore[type-var] # what the types forbid

    def test_a_closed_handle_takes_none(self, hf: Holdfast) -> None:
        hf.close()
        with pytest.raises(holdfast.Closed):
            hf.migration(1, 2)


class TestLoading:
    def test_an_older_state_is_migrated(self, hf: Holdfast) -> None:
        hf.migration(1, 2)(rename)
        saved = hf.thread("t", schema_version=1).save({"log": ["a"]})
        thread = hf.thread("t", schema_version=2)
        assert latest(thread).state == {"messages": ["a"]}
        assert thread.load(saved.id).state == {"messages": ["a"]}
        assert latest(thread).state == {"messages": ["a"]}

    def test_a_state_of_the_same_version_is_as_it_was_saved(self, hf: Holdfast) -> None:
        hf.migration(1, 2)(rename)
        hf.thread("t", schema_version=2).save({"log": "of version 2"})
        assert latest(hf.thread("t", schema_version=2)).state == {"log": "of version 2"}

    def test_without_a_schema_version_a_state_is_as_it_was_saved(self, hf: Holdfast) -> None:
        hf.migration(1, 2)(rename)
        hf.thread("t", schema_version=1).save({"log": ["a"]})
        assert latest(hf.thread("t")).state == {"log": ["a"]}
        assert latest(hf.thread("t", schema_version=1)).state == {"log": ["a"]}

    def test_migrations_come_before_the_type(self, hf: Holdfast) -> None:
        @dataclass
        class Talk:
            messages: list[str]

        hf.migration(1, 2)(rename)
        hf.thread("t", schema_version=1).save({"log": ["a"]})
        assert latest(hf.thread("t", type=Talk, schema_version=2)).state == Talk(["a"])
        with pytest.raises(InvalidArgument, match="does not fit"):
            hf.thread("t", type=Talk).latest()

    def test_the_async_view_migrates_too(self, hf: Holdfast) -> None:
        hf.aio.migration(1, 2)(rename)
        hf.thread("t", schema_version=1).save({"log": ["a"]})
        found = asyncio.run(hf.aio.thread("t", schema_version=2).latest())
        assert found is not None
        assert found.state == {"messages": ["a"]}

    def test_history_and_diff_show_what_is_stored(self, hf: Holdfast) -> None:
        hf.migration(1, 2)(rename)
        hf.thread("t", schema_version=1).save({"log": ["a"]})
        thread = hf.thread("t", schema_version=2)
        thread.save({"messages": ["a"]})
        assert [checkpoint.schema_version for checkpoint in thread.history()] == [2, 1]
        changes = [(change.kind, change.path) for change in thread.diff("@-2", "@-1").changes]
        assert changes == [("removed", "$.log"), ("added", "$.messages")]
        assert thread.load("@-2").schema_version == 1


class TestPaths:
    def test_migrations_are_chained(self, hf: Holdfast) -> None:
        for from_ in (1, 2, 3):
            hf.migration(from_, from_ + 1)(trail(from_ + 1))
        hf.thread("t", schema_version=1).save([1])
        assert latest(hf.thread("t", schema_version=4)).state == [1, 2, 3, 4]
        assert latest(hf.thread("t", schema_version=3)).state == [1, 2, 3]

    @pytest.mark.parametrize("order", list(itertools.permutations([(1, 2), (2, 5), (1, 3), (3, 5)])))
    def test_the_shortest_path_is_taken_whatever_was_registered_first(
        self, hf: Holdfast, order: tuple[tuple[int, int], ...]
    ) -> None:
        for from_, to in (*order, (3, 4), (4, 5), (5, 6)):
            hf.migration(from_, to)(trail(to))
        hf.thread("t", schema_version=1).save([1])
        assert latest(hf.thread("t", schema_version=5)).state == [1, 2, 5]

    def test_a_shorter_path_is_taken_before_one_by_lower_versions(self, hf: Holdfast) -> None:
        for from_, to in [(1, 2), (2, 3), (3, 4), (1, 3)]:
            hf.migration(from_, to)(trail(to))
        hf.thread("t", schema_version=1).save([1])
        assert latest(hf.thread("t", schema_version=4)).state == [1, 3, 4]

    def test_no_path_leads_over_a_version_that_is_too_new(self, hf: Holdfast) -> None:
        hf.migration(1, 9)(trail(9))
        hf.thread("t", schema_version=1).save([1])
        with pytest.raises(Incompatible):
            hf.thread("t", schema_version=2).latest()


class TestWithoutAVersion:
    def test_what_was_stored_without_a_version_is_incompatible_with_any(self, hf: Holdfast) -> None:
        hf.migration(1, 2)(rename)
        hf.thread("t").save({"log": ["a"]})
        with pytest.raises(Incompatible, match=r"without a schema version, and version 2 is wanted\. .*from version 0"):
            hf.thread("t", schema_version=2).latest()

    def test_it_counts_as_version_0_if_there_is_a_migration_from_0(self, hf: Holdfast) -> None:
        @hf.migration(0, 1)
        def name(state: list[str]) -> dict[str, list[str]]:
            return {"log": state}

        hf.migration(1, 2)(rename)
        hf.thread("t").save(["a"])
        assert latest(hf.thread("t", schema_version=2)).state == {"messages": ["a"]}
        with pytest.raises(Incompatible, match="without a schema version, and version 3"):
            hf.thread("t", schema_version=3).latest()

    def test_it_counts_as_version_0_for_who_wants_that(self, hf: Holdfast) -> None:
        hf.thread("t").save(["a"])
        assert latest(hf.thread("t", schema_version=0)).state == ["a"]


class TestIncompatible:
    @covers("G6")
    def test_a_newer_state_is_refused(self, hf: Holdfast) -> None:
        hf.thread("t", schema_version=3).save({"n": 1})
        thread = hf.thread("t", schema_version=2)
        with pytest.raises(Incompatible, match="thread 't': its state has schema version 3, and version 2 is wanted"):
            thread.latest()
        with pytest.raises(Incompatible):
            thread.load("@-1")
        assert [checkpoint.schema_version for checkpoint in thread.history()] == [3]

    def test_a_gap_in_the_migrations_is_named(self, hf: Holdfast) -> None:
        hf.migration(1, 2)(rename)
        hf.migration(3, 4)(rename)
        hf.thread("t", schema_version=1).save({"log": []})
        with pytest.raises(Incompatible, match=r"has schema version 1, and version 4 is wanted\. Register migrations"):
            hf.thread("t", schema_version=4).latest()

    def test_a_migration_that_raises_is_named_without_what_it_said(self, hf: Holdfast) -> None:
        @hf.migration(1, 2)
        def break_down(state: Any) -> Any:
            raise KeyError(state["secret"])

        hf.thread("t", schema_version=1).save({"secret": "hunter2"})
        with pytest.raises(Incompatible, match="from schema version 1 to 2 raised KeyError") as refused:
            hf.thread("t", schema_version=2).latest()
        assert isinstance(refused.value.__cause__, KeyError)
        assert "hunter2" not in str(refused.value)
        assert latest(hf.thread("t")).state == {"secret": "hunter2"}

    def test_a_fallback_does_not_pass_it_over(self, hf: Holdfast) -> None:
        hf.thread("t", schema_version=1).save({"n": 1})
        hf.thread("t", schema_version=2).save({"n": 2})
        with pytest.raises(Incompatible):
            hf.thread("t", schema_version=1).latest(fallback=True)

    def test_what_a_migration_returns_is_refused_at_the_save_if_it_cannot_be_stored(self, hf: Holdfast) -> None:
        @hf.migration(1, 2)
        def make(_: Any) -> Any:
            return {"made": object()}

        hf.thread("t", schema_version=1).save({"n": 1})
        thread = hf.thread("t", schema_version=2)
        state = latest(thread).state
        with pytest.raises(holdfast.Unsupported, match=r"\$\.made"):
            thread.save(state)
        assert latest(hf.thread("t")).state == {"n": 1}


class TestSavingAfter:
    def test_the_next_save_stores_the_migrated_state_and_its_version(self, open_file: OpenHandle) -> None:
        long = [f"message {n} of a log that is long enough to be kept as a log" for n in range(200)]
        first = open_file()
        old = first.thread("t", schema_version=1).save({"log": list(long), "n": 1})
        hf = open_file()
        hf.migration(1, 2)(rename)
        thread = hf.thread("t", schema_version=2)
        state = latest(thread).state
        state["messages"].append("new")
        state["messages"][7] = "changed"
        assert thread.save(state).schema_version == 2
        wanted = {"n": 1, "messages": [*long[:7], "changed", *long[8:], "new"]}
        for reader in (hf, open_file()):
            assert latest(reader.thread("t")).state == wanted
            assert latest(reader.thread("t", schema_version=2)).state == wanted
            assert reader.thread("t", schema_version=1).load(old.id).state == {"log": long, "n": 1}
            assert reader.verify().ok
        assert thread.load(old.id).state == {"n": 1, "messages": long}

    def test_loading_stores_nothing(self, hf: Holdfast) -> None:
        hf.migration(1, 2)(rename)
        old = hf.thread("t", schema_version=1)
        saved = old.save({"log": ["a"]})
        thread = hf.thread("t", schema_version=2)
        latest(thread).state["messages"].append("of no checkpoint")
        assert latest(old).state == {"log": ["a"]}
        assert [checkpoint.id for checkpoint in thread.history()] == [saved.id]
        assert old.save({"log": ["a", "b"]}).seq == 2


class TestForks:
    def test_a_fork_keeps_the_version_of_what_it_begins_with(self, hf: Holdfast) -> None:
        hf.migration(1, 2)(rename)
        hf.thread("t", schema_version=1).save({"log": ["a"]})
        fork = hf.thread("t", schema_version=2).fork("f")
        assert latest(fork).schema_version == 1
        assert latest(fork).state == {"messages": ["a"]}
        assert latest(hf.thread("f")).state == {"log": ["a"]}
        fork.save({"messages": ["a", "b"]})
        assert latest(fork).state == {"messages": ["a", "b"]}
        assert hf.verify().ok

    def test_an_edited_fork_is_of_the_version_of_who_made_it(self, hf: Holdfast) -> None:
        hf.migration(1, 2)(rename)
        hf.thread("t", schema_version=1).save({"log": ["a"]})
        fork = hf.thread("t", schema_version=2).fork("f", state={"messages": ["edited"]})
        assert (latest(fork).schema_version, latest(fork).state) == (2, {"messages": ["edited"]})
        assert hf.verify().ok


def test_a_save_that_says_no_version_keeps_that_of_the_head(hf: Holdfast) -> None:
    """A worker that knows nothing of versions must not strip them: the state would be migrated twice, or refused."""
    hf.thread("t", schema_version=2).save({"n": 1})
    plain = hf.thread("t")
    plain.latest()
    assert plain.save({"n": 2}).schema_version == 2
    with hf.run("t") as run:
        run.state["n"] = 3
        run.finish()
    latest = hf.thread("t", schema_version=2).latest()
    assert latest is not None
    assert (latest.state, latest.schema_version) == ({"n": 3}, 2)
