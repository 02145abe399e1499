"""The page for people who cannot see it, use no mouse, or have no scripts: checked by axe-core in the browser."""

from __future__ import annotations

import itertools
from typing import Any

from tests.selection import IN_FULL
from tests.ui import axe, scene
from tests.ui.browser import Browser
from tests.ui.conftest import Server
from tests.ui.test_browser import opened
from tests.ui.test_screens import VIEWS, WIDTHS

_UNFOLD = "for (const each of document.querySelectorAll('details')) each.open = true"


def test_axe_finds_nothing_wrong_with_any_view(browser: Browser, served: Server) -> None:
    opened(browser, served)
    found: dict[str, list[dict[str, Any]]] = {}
    looks = [(False, WIDTHS[1]), (True, WIDTHS[0])]
    turns = itertools.cycle(looks)  # `make test` takes them by turns
    try:
        for name, (path, query) in VIEWS.items():
            browser.go(served.address(path, **query))
            browser.wait(lambda: browser.all("html[data-ready]:not(:has([data-lazy]))") or None)
            for is_dark, width in looks if IN_FULL else [next(turns)]:
                browser.size(width, 900)
                browser.dark(on=is_dark)
                browser.run(_UNFOLD)  # axe skips what is not shown
                found[f"{name}, {width} pixels"] = axe.violations(browser)
    finally:
        browser.dark(on=False)
    assert {view: wrong for view, wrong in found.items() if wrong} == {}


def test_axe_finds_nothing_wrong_with_a_plan(browser: Browser, served: Server) -> None:
    opened(browser, served)
    browser.click("button[value=true]")
    browser.find("button.sure")
    assert axe.violations(browser) == []


def test_axe_finds_what_is_wrong(browser: Browser, served: Server) -> None:
    opened(browser, served)
    browser.run("document.querySelector('main').innerHTML += '<input><img src=x><p style=\"color:#eee\">pale</p>'")
    assert {each["rule"] for each in axe.violations(browser)} >= {"label", "image-alt"}


def test_everything_can_be_read_without_scripts(browser: Browser, served: Server) -> None:
    opened(browser, served)
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.go(served.address("/"))
        assert "Needs a decision" in browser.text()
        browser.click("nav a[href='/threads']")
        browser.wait(lambda: "Threads" in browser.driver.title or None)
        browser.click(f'a[data-key="{scene.BOOK}"]')
        browser.wait(lambda: scene.BOOK in browser.text("h1") or None)
        browser.click("ol.steps li:nth-child(3) a[data-step]")
        browser.wait(lambda: browser.text("#part-chosen h2") == "Step 7" or None)
        browser.click("noscript a")
        browser.wait(lambda: "Size of the state" in browser.text() or None)
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
