"""The demo on the page: its crashes, resumes and settled calls are those of the ledger, which knows no journal."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from holdfast.demo import play as demo
from tests.ui.conftest import Page
from tests.ui.test_pages import text_of


def figure(text: str, words: str) -> int:
    found = re.search(rf"(\d+) {words}", text)
    return 0 if found is None else int(found[1])


def test_the_page_tells_the_crashes_that_the_killer_counted(played: tuple[demo.Papers, Page]) -> None:
    papers, page = played
    text = text_of(page.get("/thread", name=demo.THREAD, part="head").text)
    events = papers.records("events.jsonl")
    kills = papers.records("kills.jsonl")
    # A clerk that was killed between saying that it leaves and leaving may have left.
    unsure = sum(_last_of(events, kill) == "leave" for kill in kills)
    assert len(kills) - unsure <= figure(text, "crash") <= len(kills)
    assert figure(text, "crash") >= 1
    assert figure(text, "resume") == sum(event["event"] == "claim" for event in events) - 1
    inbox = text_of(page.get("/").text)
    assert ("post_letter" in inbox, "dispute" in inbox) == (True, False)  # the one run that it leaves for the user


def test_the_page_tells_how_doubts_were_settled(played: tuple[demo.Papers, Page]) -> None:
    papers, page = played
    asked = Counter(each["call"].partition(" ")[0] for each in papers.records("settled.jsonl"))
    assert asked["dispute"] >= 1, "the demo sees to it that there is one"
    found: Counter[str] = Counter()
    for checkpoint in page.hf.thread(demo.THREAD).history():
        text = text_of(page.get("/thread", name=demo.THREAD, at=checkpoint.id, part="chosen").text)
        found.update(re.findall(r"(\w+) done [^·]*\w+ · call \d+ · \S+ was in doubt, settled by a person", text))
    assert found["dispute"] >= 1
    assert found.total() <= asked.total()


def _last_of(events: list[dict[str, Any]], kill: dict[str, Any]) -> str:
    said: str = [event for event in events if event["pid"] == kill["pid"]][-1]["event"]
    return said
