"""The tour of a new user by the page: the demo and its page, then inbox, settle, fork, rerun, diff, export."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import holdfast
from holdfast import Run
from tests.examples.played import played_demo
from tests.ui.browser import Browser
from tests.ui.conftest import Server, WarmServer
from tests.ui.test_browser import opened

JOB, TRIAL = "letters/7", "letters/7-trial"
posted: list[str] = []


@holdfast.tool(effect="irreversible", in_doubt="ask")
def post_letter(to: str, text: str) -> str:
    posted.append(text)
    if len(posted) == 1:
        raise ConnectionError("the line went dead")
    return f"posted to {to}"


def clerk(run: Run) -> None:
    for step in run.steps():
        if step == 1:
            run.state["messages"].append({"role": "assistant", "content": f"I write: {run.state['text']}"})
            continue
        result = run.tool(post_letter, {"to": "Ann", "text": run.state["text"]}, key="letter")
        run.state["messages"].append({"role": "assistant", "content": result})
        run.finish(result)
        break


def work(store: Path) -> None:
    """What a worker of the user does meanwhile."""
    with holdfast.open(store) as hf:
        hf.worker({"clerk": clerk}).run(until_idle=True)


def confirmed(browser: Browser, selector: str, *words: str) -> None:
    """Press a button, read the plan, and confirm it."""
    browser.click(selector)
    browser.wait(lambda: browser.text("h1") == "Confirm" or None)
    for each in words:
        assert each in browser.text(".plan-text")
    browser.click("button.sure")
    browser.find("p.done")


def inbox_count(browser: Browser) -> int:
    found = browser.all("nav .badge")
    return int(found[0].text.split()[0]) if found else 0


def test_the_tour_starts_with_the_demo(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The page is started as the demo says at its end."""
    kept = played_demo(tmp_path_factory)
    said = (kept / "output.txt").read_text()
    [folder] = re.findall(r"^ *cd (.*)$", said, re.MULTILINE)
    assert re.search(r"^ .* ui$", said, re.MULTILINE), "there, the store is found without --store"
    server = Server(Path(*shlex.split(folder)) / "agent.db")
    try:
        opened(browser, server)
        assert "post_letter" in browser.text("article.item"), "the run that the demo leaves to its reader"
        assert inbox_count(browser) == 1
        browser.click("nav a[href='/threads']")
        browser.wait(lambda: "\u2715" in browser.text(".threads") or None)  # the crashes
        browser.click('a[data-key="invoices"]')
        browser.wait(lambda: "completed" in browser.text("#part-head") or None)
        assert re.search(r"\u2715 \d+ crash", browser.text("#part-head"))
        assert "\u2715 crash" in browser.text("ol.steps"), "where it died"
        assert not browser.all("form.act"), "the page of the demo only reads"
        browser.click("ol.steps li:has(.mark.crash) a[data-step]")
        browser.wait(lambda: browser.driver.current_url.partition("at=")[2] or None)
        browser.find("#calls details.effect")
        browser.wait(lambda: browser.text("#part-plots") or None)
        assert browser.complaints() == []
    finally:
        server.end()


def test_the_tour_of_a_new_user(browser: Browser, tmp_path: Path) -> None:
    posted.clear()
    store = tmp_path / "agent.db"
    with holdfast.open(store, durability="off") as hf:
        hf.submit("clerk", JOB, start={"messages": [], "text": "Dear Ann"})
    work(store)
    server = WarmServer(store, "--allow-write")
    try:
        # Inbox: what is asked, with arguments and what is known.
        opened(browser, server)
        assert inbox_count(browser) == 1
        item = browser.text("article.item")
        for words in ("post_letter", "to", "Ann", "Dear Ann", "the line went dead", "Did it happen?"):
            assert words in item
        confirmed(browser, "button[value=not_done]", "post_letter", "it did not happen", "the web UI")
        assert "Nothing needs you." in browser.text()
        assert inbox_count(browser) == 0
        work(store)
        assert len(posted) == 2

        # The thread: its steps in words, and a fork with another state.
        browser.click("nav a[href='/threads']")
        browser.find("html[data-ready] .threads")
        browser.click(f'a[data-key="{JOB}"]')
        browser.wait(lambda: "completed" in browser.text("#part-head") or None)
        assert "post_letter" in browser.text("ol.steps")
        browser.click("ol.steps li:nth-child(2) a[data-step]")
        browser.wait(lambda: browser.text("#part-chosen h2") == "Step 0" or None)
        browser.click("#part-chosen .menu summary")
        name = browser.find("#part-chosen input[name=name]")
        name.clear()
        name.send_keys(TRIAL)
        browser.click("a[data-fetch=edit]")
        area = browser.find("textarea[name=state]")
        area.clear()
        area.send_keys('{"messages": [], "text": "Dear Bob"}')
        confirmed(browser, "form[action$='/act/fork'] button", TRIAL, "with your edited state")
        assert browser.text("h1") == TRIAL

        # Run the fork: it asks before it posts.
        browser.find("html[data-ready]")
        browser.click("#part-head .menu summary")
        confirmed(browser, "form[action$='/act/resume'] button", "clerk", "asks for permission")
        work(store)
        assert len(posted) == 2, "nothing is posted without permission"
        browser.click("nav a[href='/']")
        browser.wait(lambda: "It waits for permission" in browser.text("article.item") or None)
        assert "Dear Bob" in browser.text("article.item")
        confirmed(browser, "button[value=not_done]", "it is allowed")
        work(store)
        assert posted == ["Dear Ann", "Dear Ann", "Dear Bob"]

        # Compare it with its origin.
        browser.go(server.address("/thread", name=TRIAL))
        browser.wait(lambda: "completed" in browser.text("#part-head") or None)
        browser.find("#against").send_keys(f"{JOB}@-1")
        browser.click(".against button")
        browser.wait(lambda: f"since {JOB} step 2" in browser.text("#changes") or None)
        assert "Dear Bob" in browser.text("#changes")
        assert "Dear Ann" in browser.text("#changes")

        # Export it.
        links = {
            each.get_attribute("textContent"): each.get_attribute("href") for each in browser.all(".menu a[download]")
        }
        texts = {
            said: browser.run("return fetch(arguments[0]).then(each => each.text())", link)
            for said, link in links.items()
        }
        assert len(texts) == 3
        assert all("Dear Bob" in text for text in texts.values())
        assert browser.complaints() == []
    finally:
        server.end()
    with holdfast.open(store) as hf:
        settled = [each.by for each in hf.effects(JOB) if each.name == "post_letter"]
        assert "the web UI" in settled, "who settled it is recorded"
