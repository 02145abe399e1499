"""The demo on the first screen: its figures are those of the ledger and of the model server, which know no journal."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from examples import demo
from tests.selection import in_full
from tests.ui.conftest import Page, playing


def figure(text: str, name: str) -> int:
    found = re.search(rf'data-figure="{name}"[^>]*>([^<]*)<', text)
    assert found is not None, f"there is no {name}"
    return int(found[1].replace("\u2009", ""))


def settled(text: str) -> Counter[tuple[str, str, str]]:
    found = re.findall(r'data-settled="([^/]*)/([^/]*)/([^"]*)">(\d+)<', text)
    return Counter({(tool, how, happened): int(count) for tool, how, happened, count in found})


def test_the_first_screen_tells_what_the_ledger_and_the_server_counted(played: tuple[demo.Papers, Page]) -> None:
    papers, page = played
    text = page.get("/").text
    events = papers.records("events.jsonl")
    kills = papers.records("kills.jsonl")
    ledger = Counter(line.partition(",")[0] for line in papers.lines("ledger.csv"))

    # A clerk that was killed between saying that it leaves and leaving may have left.
    unsure = sum(_last_of(events, kill) == "leave" for kill in kills)
    assert len(kills) - unsure <= figure(text, "crashed") <= len(kills)
    assert figure(text, "crashed") >= 1
    assert figure(text, "resumed") == sum(event["event"] == "claim" for event in events) - 1

    # What the server answered, less what nobody lived to record: at most one for each kill inside a model call.
    requests = papers.records("requests.jsonl")
    in_flight = sum(kill["during"] == "the model" for kill in kills)
    assert figure(text, "models") == len({request["turn"] for request in requests})
    assert 0 <= len(requests) - figure(text, "models") <= in_flight

    # A clerk that was killed right after it was answered from the journal, and before it wrote anything, told nobody.
    untold = sum(_was_answered_last(events, kill) for kill in kills)
    answered = sum(event["event"] == "model" and event["recorded"] for event in events)
    assert answered - untold <= figure(text, "models-known") <= answered

    assert figure(text, "effects") == ledger["pay"] + ledger["dispute"] + len(papers.lines("budget.csv"))
    for tool, count in (*ledger.items(), ("reserve", len(papers.lines("budget.csv")))):
        assert f"{tool} {count}" in text
    assert figure(text, "in-doubt") == 0


def test_the_first_screen_tells_how_doubts_were_settled(played: tuple[demo.Papers, Page]) -> None:
    papers, page = played
    counted = _decided(papers)
    assert counted["dispute", "person", "yes"] >= 1, "the demo sees to it that there is one"
    kills = papers.records("kills.jsonl")
    # Who was killed between asking the bank and writing what it said, asked in vain.
    in_vain = sum(_last_of(papers.records("events.jsonl"), kill) == "probe" for kill in kills)
    # Who was killed before its intent was written, or after its result was, left nothing in doubt.
    told = settled(page.get("/").text)
    assert (counted - told - _reserved_again(papers)).total() <= in_vain
    assert not told - counted


def _events_of(events: list[dict[str, Any]], kill: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in events if event["pid"] == kill["pid"]]


def _last_of(events: list[dict[str, Any]], kill: dict[str, Any]) -> str:
    said: str = _events_of(events, kill)[-1]["event"]
    return said


def _was_answered_last(events: list[dict[str, Any]], kill: dict[str, Any]) -> bool:
    """Whether nothing was made by a clerk, and so written, after the last time it was answered from the journal."""
    own = [event for event in _events_of(events, kill) if event["event"] in ("model", "tool", "probe", "begin")]
    while own and own[-1]["event"] == "begin" and own[-1]["call"] == "the model":
        own.pop()
    return bool(own) and own[-1].get("recorded") is True


class Striker(demo.Killer):
    """Kills a clerk inside an effect whose intent is written, once in each: then only its own call is in flight."""

    struck: set[int]

    def __init__(self, play: demo.Play, seed: int, most: int) -> None:
        super().__init__(play, seed, most)
        self.struck = set()

    def _is_time(self) -> bool:
        holder = self._holder
        if holder is None or not any(clerk.pid == holder for clerk in self._play.clerks):
            return False
        os.kill(holder, signal.SIGSTOP)  # it must not go on between the look and the kill
        os.waitid(os.P_PID, holder, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        begun = {effect.number for effect in self._play.hf.effects(demo.THREAD) if effect.status == "begun"}
        if not begun - self.struck:
            os.kill(holder, signal.SIGCONT)
            return False
        self.struck |= begun
        return True


@in_full("it plays the demo a second time")
def test_where_no_model_call_was_in_flight_every_figure_is_exact(tmp_path: Path) -> None:
    with playing(tmp_path, Striker) as (papers, page):
        text = page.get("/").text
    events, kills, requests = (papers.records(f"{name}.jsonl") for name in ("events", "kills", "requests"))
    assert len(kills) >= 8, "each invoice is paid or disputed, and the clerk that does so is killed"
    assert figure(text, "crashed") == len(kills)
    assert figure(text, "resumed") == sum(event["event"] == "claim" for event in events) - 1
    assert figure(text, "models") == len(requests)
    assert figure(text, "models-known") == sum(event["event"] == "model" and event["recorded"] for event in events)
    assert figure(text, "effects") == len(papers.lines("ledger.csv")) + len(papers.lines("budget.csv"))
    assert settled(text) == _decided(papers)
    assert settled(text)["reserve", "rerun", "yes"] >= 1
    assert "reserve: called again with the same key" in text


def _reserved_again(papers: demo.Papers) -> Counter[tuple[str, str, str]]:
    """Reservations during which a clerk was killed: who goes on makes them again, which does no harm."""
    during = {kill["during"] for kill in papers.records("kills.jsonl") if kill["during"]}
    return Counter({("reserve", "rerun", "yes"): sum(call.startswith("reserve") for call in during)})


def _decided(papers: demo.Papers) -> Counter[tuple[str, str, str]]:
    """How doubts were settled, as the bank and the person noted it, and whoever killed."""
    counted = +_reserved_again(papers)
    for event in papers.records("events.jsonl"):
        if event["event"] == "probe":
            counted["pay", "probe", "yes" if event["happened"] else "no"] += 1
    for said in papers.records("settled.jsonl"):
        counted[said["call"].partition(" ")[0], "person", "yes" if said["happened"] else "no"] += 1
    return counted


def test_the_demo_can_be_kept(tmp_path: Path) -> None:
    with demo._folder(tmp_path / "kept") as name:
        assert name == str(tmp_path / "kept")
    with demo._folder(None) as name:
        assert Path(name).is_dir()
    assert not Path(name).exists()
