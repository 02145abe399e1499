"""The journal of a graph's tools: a run that its tool calls share."""

from __future__ import annotations

from holdfast import Holdfast
from holdfast.adapters.langgraph.tool_journal import ToolJournal
from holdfast.runs.doubt import suspended_for_permission
from holdfast.runs.drivers import drive
from holdfast.runs.tools import tool_of
from holdfast.stores.sqlite.memory import MemoryStore


def pay(what: str) -> str:
    return what


def test_a_question_has_its_number_although_another_call_has_claimed_the_run_again() -> None:
    with Holdfast(MemoryStore(namespace="default")) as hf:
        run = ToolJournal(hf.context, "t", 30.0)
        core = run.enter()
        assert core is not None
        journal = core.calls().context.journal
        row = journal.new(1, "pay\x1f1", "pay", "irreversible", "asked", b"")
        question = suspended_for_permission(row)
        core.calls().context.suspend(question)
        run.leave(is_last=True)
        [asked] = hf.effects(run.name)

        again = run.enter()  # a sibling, before the number is read
        assert again is not None
        assert drive(again.calls().tool(tool_of(pay), {"what": "x"}, "2", caller=None)) == "x"
        found = run.unsettled(question)
        assert found is not None
        assert found.number == asked.number
        run.leave()


def test_a_question_that_was_not_written_is_asked_again() -> None:
    with Holdfast(MemoryStore(namespace="default")) as hf:
        run = ToolJournal(hf.context, "t", 30.0)
        core = run.enter()
        assert core is not None
        row = core.calls().context.journal.new(1, "pay\x1f1", "pay", "irreversible", "asked", b"")
        run.leave()
        assert run.unsettled(suspended_for_permission(row)) is None
