"""A system prompt in two parts."""

from __future__ import annotations

from holdfast.states import Prompt, Text
from tests.covers import covers

MARK = "--- changes ---"


@covers("smooth/PromptCache.from_system_prompt")
def test_a_prompt_is_split_at_the_boundary() -> None:
    assert Prompt.split(f"rules{MARK}today", MARK) == Prompt("rules", "today")
    assert Prompt.split(f"rules{MARK}", MARK) == Prompt("rules", "")


@covers("smooth/PromptCache.no_marker")
def test_without_a_boundary_all_of_it_may_change() -> None:
    assert Prompt.split("all", MARK) == Prompt("", "all")


@covers("smooth/PromptCache.full_prompt")
def test_both_parts_are_one_text_and_two_parts() -> None:
    prompt = Prompt("rules ", "today")
    assert prompt.text == "rules today"
    assert prompt.parts == [Text("rules "), Text("today")]
    assert Prompt("", "today").parts == [Text("today")]


@covers("smooth/PromptCache.update_dynamic", "smooth/PromptCache.static_hash")
def test_the_digest_is_that_of_what_stays() -> None:
    prompt = Prompt("rules", "Monday")
    assert prompt.with_dynamic("Tuesday") == Prompt("rules", "Tuesday")
    assert prompt.with_dynamic("Tuesday").digest == prompt.digest
    assert Prompt("other rules", "Monday").digest != prompt.digest
