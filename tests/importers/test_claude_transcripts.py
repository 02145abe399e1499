"""Transcripts of Claude Code become threads: steps in order, rewinds as branches, a thread for each sub-agent."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Usage
from tests.importers.claude_source import (
    BEGAN,
    SESSION,
    Transcript,
    call,
    parallel_turn,
    said,
    whole,
    write_project,
)
from tests.importers.claude_threads import lineage, origin, steps, taken, texts, written


@pytest.fixture
def hf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path_factory.mktemp("store") / "agent.db", durability="off") as handle:
        yield handle


# -- what becomes of a session ----------------------------------------------------------------------------------------


def test_a_step_is_a_checkpoint_with_the_id_and_the_time_of_its_last_line(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    prompt, *_, second, answer = parallel_turn(talk)

    report = taken(hf, written(talk, tmp_path))

    assert report.ok
    assert (report.threads, report.checkpoints, report.checked) == (1, 3, 3)
    assert lineage(hf) == {prompt: None, second: prompt, answer: second}
    found = steps(hf)
    assert [each.step for each in found.values()] == [1, 2, 3]
    assert [each.trigger for each in found.values()] == ["user", "tool_result", "assistant"]
    assert [each.created_at for each in found.values()] == [BEGAN + timedelta(seconds=n) for n in (1, 7, 8)]
    assert found[answer].metadata["cwd"] == "/home/somebody/project"


def test_the_messages_are_those_of_the_model_with_all_that_their_lines_say(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    parallel_turn(talk)
    taken(hf, written(talk, tmp_path))

    latest = hf.thread(SESSION).latest()

    assert latest is not None
    spoken = [line for line in talk.lines if "message" in line]
    assert [{"role": each["role"], "content": each["content"]} for each in latest.state["messages"]] == [
        {"role": line["message"]["role"], "content": line["message"]["content"]} for line in spoken
    ]
    for message, line in zip(latest.state["messages"], spoken, strict=True):
        said_besides = message.pop("line")
        assert {**said_besides, "message": message} == line


def test_calls_that_ran_side_by_side_are_no_branches(tmp_path: Path, hf: Holdfast) -> None:
    """Each result names its own call as its parent; whoever follows one parent to the next loses the others."""
    talk = Transcript()
    *_, answer = parallel_turn(talk)
    taken(hf, written(talk, tmp_path))

    assert texts(steps(hf)[answer]) == [
        "Which files are there?",
        "Two looks.",
        "toolu_1",
        "toolu_2",
        "a.txt",
        "b.txt",
        "a.txt and b.txt.",
    ]


def test_a_result_that_came_before_the_last_call_was_written_stays_in_its_place(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    talk.prompt("Look.")
    one, other = talk.reply(call("toolu_1"), call("toolu_2"))
    early = talk.lines.pop()
    talk.result("toolu_1", "one", parent=one)
    talk.lines.append(early)
    talk.result("toolu_2", "two", parent=other)
    [answer] = talk.reply(said("Done."))
    taken(hf, written(talk, tmp_path))

    assert texts(steps(hf)[answer]) == ["Look.", "toolu_1", "one", "toolu_2", "two", "Done."]
    assert len(lineage(hf)) == 3


def test_what_was_rewound_is_a_branch(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    prompt = talk.prompt("Name a bird.")
    [first] = talk.reply(said("Wren."))
    other = talk.prompt("Another.")
    [left] = talk.reply(said("Rook."))
    again = talk.prompt("A larger one.", parent=first)
    [last] = talk.reply(said("Ostrich."))
    taken(hf, written(talk, tmp_path))

    assert lineage(hf) == {prompt: None, first: prompt, other: first, left: other, again: first, last: again}
    found = steps(hf)
    assert texts(found[left]) == ["Name a bird.", "Wren.", "Another.", "Rook."]
    assert texts(found[last]) == ["Name a bird.", "Wren.", "A larger one.", "Ostrich."]
    latest = hf.thread(SESSION).latest()
    assert latest is not None
    assert origin(latest) == last


def test_a_reply_that_was_tried_again_is_a_branch_at_its_prompt(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    prompt = talk.prompt("Name a bird.")
    [first] = talk.reply(said("Wren."))
    [second] = talk.reply(said("Rook."), parent=prompt)
    taken(hf, written(talk, tmp_path))
    assert lineage(hf) == {prompt: None, first: prompt, second: prompt}


def test_a_rewind_into_the_middle_of_a_step_keeps_what_was_there(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    prompt = talk.prompt("Look.")
    [asked] = talk.reply(call("toolu_1"))
    seen = talk.result("toolu_1", "a dog", parent=asked)
    [answer] = talk.reply(said("A dog."))
    first = talk.prompt("[Request interrupted by user]", parent=asked)
    found = taken(hf, written(talk, tmp_path))
    assert found.ok
    # The line names the call; what the call gave is not lost for it.
    assert lineage(hf) == {prompt: None, seen: prompt, answer: seen, first: seen}


def test_a_compaction_ends_the_messages_and_not_the_line(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    talk.prompt("A long story.")
    [told] = talk.reply(said("Once."))
    talk.boundary()
    summary = talk.prompt("It was long.", isCompactSummary=True)
    [after] = talk.reply(said("Go on."))
    taken(hf, written(talk, tmp_path))

    found = steps(hf)
    assert lineage(hf)[summary] == told
    assert texts(found[told]) == ["A long story.", "Once."]
    assert texts(found[summary]) == ["It was long."]
    assert texts(found[after]) == ["It was long.", "Go on."]
    assert found[summary].trigger == "compaction"


def test_what_a_compaction_kept_stands_behind_its_summary(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    talk.prompt("A long story.")
    talk.reply(said("Once."))
    kept = talk.prompt("And then?")
    [last] = talk.reply(said("Upon a time."))
    number = len(talk.lines) + 2
    talk.boundary(preservedSegment={"headUuid": kept, "anchorUuid": f"user-{number}", "tailUuid": last})
    talk.prompt("It was long.", isCompactSummary=True)
    talk.prompt("Go on.")
    [after] = talk.reply(said("The end."))
    taken(hf, written(talk, tmp_path))

    assert texts(steps(hf)[after]) == ["It was long.", "And then?", "Upon a time.", "Go on.", "The end."]


def test_titles_and_what_else_is_said_of_a_session_are_part_of_its_state(tmp_path: Path, hf: Holdfast) -> None:
    report = taken(hf, written(whole(), tmp_path))

    latest = hf.thread(SESSION).latest()

    assert report.ok
    assert latest is not None
    assert latest.state["session"] == {
        "summary": {"summary": "Files", "leafUuid": "somewhere-else"},
        "ai-title": {"aiTitle": "Looking at files"},
        "custom-title": {"customTitle": "Files of mine"},
    }
    assert latest.trigger == "custom-title"
    [remark] = report.remarks
    assert remark.reason == (
        "lines outside the conversation were left out: 1 file-history-snapshot, 1 progress, 1 system"
    )


def test_a_title_makes_no_branch(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    talk.prompt("Name a bird.")
    [first] = talk.reply(said("Wren."))
    talk.note("ai-title", aiTitle="Birds")
    talk.note("ai-title", aiTitle="Birds")  # written again whenever a session is opened
    second = talk.prompt("Another.")
    taken(hf, written(talk, tmp_path))
    assert [*lineage(hf).items()][-2:] == [(f"{first}#1", first), (second, f"{first}#1")]


def test_tokens_are_counted_once_for_each_reply(tmp_path: Path, hf: Holdfast) -> None:
    """Each line of a reply repeats what the reply has cost so far."""
    talk = Transcript()
    *_, second, answer = parallel_turn(talk)
    taken(hf, written(talk, tmp_path))
    found = steps(hf)
    assert found[second].usage == Usage(input=100, output=15, cached=90, total=115)
    assert found[answer].usage == Usage(input=200, output=20, cached=180, total=220)


def test_a_session_that_died_within_a_step_says_so(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    talk.prompt("Look.")
    _, last = talk.reply(call("toolu_1"), call("toolu_2"))
    taken(hf, written(talk, tmp_path))
    assert steps(hf)[last].resume_hint == "2 tool calls have no result yet"


# -- folders ----------------------------------------------------------------------------------------------------------


def test_a_folder_gives_a_thread_for_each_session_and_each_sub_agent(tmp_path: Path, hf: Holdfast) -> None:
    report = taken(hf, write_project(tmp_path))

    older = "0ld0ld0l-0000-4000-8000-000000000002"
    child = f"{SESSION}/subagents/agent-a1b2c3d"
    assert report.ok
    assert report.threads == 4
    assert {row.name for row in hf.threads()} == {SESSION, child, older, f"{older}/sidechain-o-user-3"}
    [_, last] = steps(hf, child).values()
    assert last.agent == "searcher"
    assert last.state["agent"] == {"agentType": "searcher", "toolUseId": "toolu_9"}
    [_, last] = steps(hf, f"{older}/sidechain-o-user-3").values()
    assert texts(last) == ["Look.", "I see nothing."]
    [*_, last] = steps(hf, older).values()
    assert texts(last) == ["Ask somebody.", "toolu_7", "It sees nothing.", "Nothing."]


def test_names_do_not_depend_on_the_folder_that_is_given(tmp_path: Path, hf: Holdfast) -> None:
    write_project(tmp_path)
    project = tmp_path / "-home-somebody-project"
    taken(hf, project / f"{SESSION}.jsonl")
    taken(hf, project / SESSION / "subagents" / "agent-a1b2c3d.jsonl")
    taken(hf, project)
    assert taken(hf, tmp_path).checkpoints == 0
    assert len([*hf.threads()]) == 4


def test_a_sub_agent_that_an_older_version_put_beside_its_session_is_named_by_both(
    tmp_path: Path, hf: Holdfast
) -> None:
    child = Transcript(prefix="c-", agent="77")
    child.prompt("Look.")
    child.write(tmp_path / "agent-77.jsonl")
    taken(hf, tmp_path)
    assert [row.name for row in hf.threads()] == [f"{SESSION}/agent-77"]


def test_a_session_that_goes_on_in_another_file_has_what_was_said_before(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    talk.prompt("Name a bird.")
    [first] = talk.reply(said("Wren."))
    talk.prompt("Left.")
    written(talk, tmp_path)
    resumed = Transcript("5f0c1d7e-0000-4000-8000-000000000009", prefix="r-")
    resumed.prompt("Another.", parent=first)
    [last] = resumed.reply(said("Rook."))
    written(resumed, tmp_path)

    report = taken(hf, tmp_path)

    assert report.ok
    assert texts(steps(hf, resumed.session)[last]) == ["Name a bird.", "Wren.", "Another.", "Rook."]
    assert [each.reason for each in report.remarks] == [f"it continues session {SESSION}, whose messages are included"]


def test_such_a_file_may_begin_with_a_line_that_nobody_spoke(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    first = talk.prompt("Name a bird.")
    written(talk, tmp_path)
    resumed = Transcript("5f0c1d7e-0000-4000-8000-000000000009", prefix="r-")
    resumed.add("system", parent=first, subtype="informational", content="resumed")
    [last] = resumed.reply(said("Wren."))
    report = taken(hf, written(resumed, tmp_path))
    assert texts(steps(hf, resumed.session)[last]) == ["Name a bird.", "Wren."]
    assert f"it continues session {SESSION}, whose messages are included" in [e.reason for e in report.remarks]


def test_a_rewind_to_the_beginning_of_such_a_file_keeps_what_was_said_before(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    first = talk.prompt("Name a bird.")
    written(talk, tmp_path)
    resumed = Transcript("5f0c1d7e-0000-4000-8000-000000000009", prefix="r-")
    [reply] = resumed.reply(said("Wren."), parent=first)
    resumed.prompt("Another.")
    last = resumed.prompt("A larger one.", parent=reply)
    taken(hf, written(resumed, tmp_path))
    assert texts(steps(hf, resumed.session)[last]) == ["Name a bird.", "Wren.", "A larger one."]


def test_files_that_go_on_from_each_other_in_a_circle_come_to_an_end(tmp_path: Path, hf: Holdfast) -> None:
    for one, other in ("ab", "ba"):
        talk = Transcript(f"session-{one}", prefix=f"{one}-")
        talk.prompt(one, parent=f"{other}-user-1")
        written(talk, tmp_path)
    report = taken(hf, tmp_path)
    assert (report.threads, report.checkpoints, report.skipped) == (2, 2, ())
    assert [texts(*steps(hf, f"session-{name}").values()) for name in "ab"] == [["b", "a"], ["a", "b"]]


def test_a_session_whose_history_was_copied_is_whole_by_itself(tmp_path: Path, hf: Holdfast) -> None:
    """Older versions, and forks, begin a file with the lines of another."""
    talk = Transcript()
    talk.prompt("Name a bird.")
    [first] = talk.reply(said("Wren."))
    written(talk, tmp_path)
    fork = Transcript("5f0c1d7e-0000-4000-8000-000000000009", prefix="f-")
    fork.lines = [
        {**line, "sessionId": fork.session, "forkedFrom": {"sessionId": SESSION, "messageUuid": line["uuid"]}}
        for line in talk.lines
    ]
    fork.prompt("Another.", parent=first)
    written(fork, tmp_path)

    report = taken(hf, tmp_path)

    assert report.ok
    assert not report.remarks
    [*_, last] = steps(hf, fork.session).values()
    assert texts(last) == ["Name a bird.", "Wren.", "Another."]
    assert last.state["messages"][0]["line"]["forkedFrom"]["sessionId"] == SESSION


def test_a_session_that_is_there_twice_is_taken_once(tmp_path: Path, hf: Holdfast) -> None:
    for project in ("one", "two"):
        talk = Transcript()
        talk.prompt(f"In {project}.")
        talk.write(tmp_path / project / f"{SESSION}.jsonl")
    report = taken(hf, tmp_path)
    [skipped] = report.skipped
    assert (skipped.item or "").endswith(f"two/{SESSION}.jsonl")
    assert report.threads == 1


def test_a_large_image_is_stored_once(tmp_path: Path) -> None:
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": os.urandom(200_000).hex()},
    }
    talk = Transcript()
    talk.add("user", message={"role": "user", "content": [image]})
    for number in range(20):
        talk.reply(said(f"Look {number}."))
        talk.prompt("Again.")
    path = written(talk, tmp_path)
    with holdfast.open(tmp_path / "image.db", durability="off") as hf:
        assert taken(hf, path).ok
    assert (tmp_path / "image.db").stat().st_size < 2 * path.stat().st_size


def test_members_that_nobody_knows_are_kept(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    talk.prompt("Look.", newMember={"deep": [1, 2.5, None, "\ud83d"]})
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_text(json.dumps(talk.lines[0]) + "\n")
    assert taken(hf, path).ok
    [found] = steps(hf).values()
    assert found.state["messages"][0]["line"]["newMember"] == {"deep": [1, 2.5, None, "\ud83d"]}


def test_attachments_are_part_of_the_conversation(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    talk.prompt("Look.")
    talk.add("attachment", attachment={"type": "file", "filename": "a.txt", "content": "a"})
    [last] = talk.reply(said("Seen."))
    taken(hf, written(talk, tmp_path))
    attachment: Any = steps(hf)[last].state["messages"][1]
    assert (attachment["role"], attachment["attachment"]["filename"]) == ("attachment", "a.txt")
