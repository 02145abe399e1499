"""Names that no browser likes: each thread has its page, its links lead there, and its forms are about it."""

from __future__ import annotations

import re
from html import unescape

import pytest

import holdfast
from tests.cases import for_each
from tests.ui.browser import Browser
from tests.ui.conftest import Page, Server, hidden
from tests.ui.test_browser import opened

ODD = [
    "new\nline",
    "carriage\rreturn\r\n",
    "nul\0x",
    "half\ud800x",
    "\u202ertl",
    "a@b",
    "t@-1",
    "sp ace",
    "a&b=c#d?e+f%41",
    "ü",
]


@for_each("name", ODD)
def test_links_and_forms_mean_the_thread(name: str) -> None:
    with holdfast.open("memory:") as hf:
        hf.thread("t").save({"of": "another"})
        for number in range(3):
            hf.thread(name).save({"n": number}, label="l@bel" if number == 1 else None)
        page = Page(hf, allow_write=True)
        links = [unescape(each) for each in re.findall(r'href="(/thread\?[^"]*)"', page.get("/threads").text)]
        found = [page.ask("GET", link) for link in links]
        assert [each.status_code for each in found] == [200, 200]
        [timeline] = [each.text for each in found if each.text.count('class="name"') == 3]
        steps = [unescape(each) for each in re.findall(r'href="(/thread\?[^"]*)" class="name"', timeline)]
        step = page.ask("GET", steps[-1])
        assert step.status_code == 200
        assert page.ask("GET", f"{steps[-1]}&against=l@bel").status_code == 200
        fork = next(each for each in step.text.split("<form")[1:] if "/act/fork" in each)
        answer = page.confirm("fork", page.send("fork", {**hidden(fork), "name": "forked"}))
        assert answer.status_code == 303
        assert hf.thread("forked").load("@-1").state == {"n": 0}
        assert page.ask("GET", answer.headers["location"]).status_code == 200


@pytest.mark.parametrize("name", ["new\nline", "half\ud800x", "nul\0x"])
def test_a_browser_acts_on_the_thread_it_shows(browser: Browser, served: Server, name: str) -> None:
    with holdfast.open(served.store) as hf:
        for number in range(3):
            hf.thread(name).save({"n": number})
    opened(browser, served, "/threads")
    browser.click(
        "a[href^='/thread'][data-key^='new'], a[href^='/thread'][data-key^='half'], a[href^='/thread'][data-key^='nul']"
    )
    browser.wait(lambda: len(browser.all(".steps a.name")) == 3 or None)
    browser.find("html[data-ready]")
    browser.run("document.querySelectorAll('.steps a.name')[1].click()")
    browser.wait(lambda: browser.text("#part-chosen h2") == "Step 2" or None)
    box = browser.find("#against")
    box.send_keys("@3")
    browser.click(".against button")
    browser.wait(lambda: "since step 3" in browser.text("#changes") or None)
    assert "given=" not in browser.driver.current_url
    browser.find("html[data-ready]")
    browser.click("#part-chosen .menu summary")
    box = browser.find("#part-chosen input[name=name]")
    box.clear()
    box.send_keys("forked")
    browser.click("form[action$='/act/fork'] button")
    browser.wait(lambda: "Confirm" in browser.text("h1") or None)
    browser.click("button.sure")
    browser.wait(lambda: browser.text("h1") == "forked" or None)
    with holdfast.open(served.store) as hf:
        assert hf.thread("forked").load("@-1").state == {"n": 1}
    assert browser.complaints() == []
