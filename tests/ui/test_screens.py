"""A picture of each view at two widths, kept to be looked at; and what can be told of them without eyes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.selection import IN_FULL, in_full
from tests.ui import scene
from tests.ui.browser import Browser
from tests.ui.conftest import Page, Server, WarmServer
from tests.ui.test_browser import opened

ROOT = Path(__file__).resolve().parents[2]
SCREENS = ROOT / "build" / "screens"
README = os.environ.get("HOLDFAST_SCREENS")
"""Where the pictures of the README go, if they are to be taken anew."""

WIDTHS = (400, 1600)  # of a telephone, and of a large screen
LEAST_CONTRAST = 4.5  # of a text to what is behind it, as WCAG 2 has it for level AA

VIEWS: dict[str, tuple[str, dict[str, str]]] = {
    "inbox": ("/", {}),
    "threads": ("/threads", {}),
    "thread": ("/thread", {"name": scene.BOOK}),
    "order": ("/thread", {"name": scene.ORDER}),
    "doubt": ("/thread", {"name": scene.LETTERS}),
    "interrupted": ("/thread", {"name": "letters/interrupted"}),
    "step": ("/thread", {"name": scene.BOOK, "at": "@4", "against": "@2"}),
    "edit": ("/thread", {"name": scene.BOOK, "at": "@4", "edit": "1"}),
    "hostile": ("/thread", {"name": scene.HOSTILE_THREAD}),
    "search": ("/search", {"q": "upon"}),
    "workers": ("/workers", {}),
    "store": ("/store", {}),
}


def test_every_view_fits_and_is_pictured(browser: Browser, served: Server) -> None:
    opened(browser, served)
    for name, (path, query) in VIEWS.items():
        browser.size(WIDTHS[0], 900)
        browser.go(served.address(path, **query))
        for width in WIDTHS:
            browser.size(width, 900)
            browser.find("html[data-ready]")
            browser.wait(lambda: not browser.all("[data-lazy]") or None)
            assert not browser.is_too_wide(), f"{name} is wider than {width} pixels"
            if IN_FULL or README is not None:  # a picture takes longer than the page
                browser.picture(SCREENS / f"{name}-{width}.png")
                browser.dark(on=True)
                browser.picture(SCREENS / f"{name}-{width}-dark.png")
                browser.dark(on=False)
    assert browser.complaints() == []


@pytest.fixture
def shown(played: tuple[Any, Page], tmp_path: Path) -> Iterator[Server]:
    """What the demo left, with a few other threads beside it."""
    played[1].hf.backup(tmp_path / "agent.db")
    with holdfast.open(tmp_path / "agent.db", durability="off") as hf:
        scene.book(hf)
        scene.paying(hf)
        scene.asking(hf)
        scene.interrupted(hf)
    server = WarmServer(tmp_path / "agent.db", "--allow-write")
    try:
        yield server
    finally:
        server.end()


@in_full("it takes the pictures of the README; make screens does the same")
def test_the_pictures_of_the_readme(browser: Browser, shown: Server) -> None:
    folder = SCREENS if README is None else ROOT / README
    pages = {"ui-inbox": ("/", {}), "ui-thread": ("/thread", {"name": "invoices"}), "ui-threads": ("/threads", {})}
    for name, (path, query) in pages.items():
        browser.size(1200, 700)
        opened(browser, shown, path, **query)
        browser.wait(lambda: browser.all("html[data-ready]:not(:has([data-lazy]))") or None)
        browser.run(_SHORTENED)
        browser.run("document.documentElement.style.overflow = 'hidden'")  # what is cut off needs no bar
        browser.picture(folder / f"{name}.png", most=1100)
        assert (folder / f"{name}.png").stat().st_size > 5_000


def test_every_text_stands_out_and_every_control_has_a_name(browser: Browser, served: Server) -> None:
    try:
        opened(browser, served)
        for path, query in VIEWS.values():
            browser.go(served.address(path, **query))
            browser.wait(lambda: browser.all("html[data-ready]:not(:has([data-lazy]))") or None)
            browser.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
            assert browser.run(_NAMELESS) == []
            for is_dark in (False, True):
                browser.dark(on=is_dark)
                pale = [each for each in browser.run(_CONTRAST) if each["ratio"] < LEAST_CONTRAST]
                assert pale == [], f"dark: {is_dark}"
    finally:
        browser.dark(on=False)


def test_whoever_reads_with_a_keyboard_sees_where_they_are(browser: Browser, served: Server) -> None:
    opened(browser, served, "/threads")
    browser.run("document.querySelector('.threads a').focus()")
    browser.find("body").send_keys("j")
    outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    assert re.search(r"<html[^>]* lang=\"en\"", browser.driver.page_source)


_SHORTENED = r"""
for (const each of document.querySelectorAll('.where, code')) {
  each.textContent = each.textContent.replace(/\S*\/agent\.db/, 'agent.db');
}
"""

_NAMELESS = """
return [...document.querySelectorAll('input:not([type=hidden]), select, textarea, button, a[href]')].filter(each => {
  const label = each.labels && [...each.labels].map(l => l.textContent).join('');
  return !(each.getAttribute('aria-label') || label || each.textContent.trim());
}).map(each => each.outerHTML.slice(0, 120));
"""

_CONTRAST = (Path(__file__).parent / "contrast.js").read_text("utf-8")
