"""The page in a real browser: found, searched, forked, answered, compared, hostile, long, and live."""

from __future__ import annotations

import http.server
import threading
from pathlib import Path
from urllib.parse import quote

import pytest
from selenium.webdriver.common.keys import Keys

import holdfast
from tests.selection import tries
from tests.ui import scene
from tests.ui.browser import Browser
from tests.ui.conftest import Server, WarmServer

LONG = tries(10_000, 3_000)

_SMUGGLED = """
const script = document.createElement('script');
script.textContent = "document.title = 'owned'";
const image = document.createElement('div');
image.innerHTML = '<img src=x onerror="document.title = 1">';
document.body.append(script, image);
"""


def opened(browser: Browser, server: Server, path: str = "/", **query: str) -> Browser:
    """The page, at an address, with the cookie that the first address brings."""
    browser.go(server.url)
    browser.find("main")
    if path != "/" or query:
        browser.go(server.address(path, **query))
    browser.find("html[data-ready]")
    return browser


def test_from_a_thread_to_a_step_and_back_by_links_and_keys(browser: Browser, served: Server) -> None:
    opened(browser, served, "/threads")
    assert "token" not in browser.driver.current_url
    browser.click(f'a[data-key="{scene.BOOK}"]')
    browser.find("html[data-ready] .steps")
    assert browser.text("#part-chosen h2") == "Step 9"
    browser.click("ol.steps li:nth-child(3) a[data-step]")
    browser.wait(lambda: browser.text("#part-chosen h2") == "Step 7" or None)
    assert "at=" in browser.driver.current_url, "the address names the step"
    assert browser.text("ol.steps [aria-current] b") == "7"
    browser.find("body").send_keys("n")
    browser.wait(lambda: browser.text("#part-chosen h2") == "Step 8" or None)
    browser.find("body").send_keys("4")
    browser.wait(lambda: browser.driver.current_url.endswith("#state") or None)
    browser.driver.refresh()
    browser.find("html[data-ready]")
    assert browser.text("#part-chosen h2") == "Step 8"
    browser.find("body").send_keys("u")
    browser.wait(lambda: browser.driver.current_url.endswith("/threads") or None)
    assert browser.complaints() == []


def test_going_back_shows_the_step_before(browser: Browser, served: Server) -> None:
    opened(browser, served, "/thread", name=scene.BOOK)
    for number in (2, 4):
        browser.click(f"ol.steps li:nth-child({number}) a[data-step]")
        browser.wait(lambda number=number: browser.text("#part-chosen h2") == f"Step {10 - number}" or None)  # type: ignore[misc]
    browser.driver.back()
    browser.wait(lambda: browser.text("#part-chosen h2") == "Step 8" or None)


def test_filters_need_no_button_and_no_mouse(browser: Browser, served: Server) -> None:
    opened(browser, served, "/threads", order="name")
    browser.find("body").send_keys("/")
    box = browser.driver.switch_to.active_element
    assert box.get_attribute("name") == "q"
    box.send_keys("book")
    browser.wait(lambda: len(browser.all(".threads tbody tr")) == 2 or None)
    assert browser.run("return document.activeElement.name") == "q", "the list changes, and the box stays"
    assert "q=book" in browser.driver.current_url
    box.send_keys(Keys.ESCAPE)
    browser.find("body").send_keys("j")
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    browser.wait(lambda: scene.BOOK in browser.text("h1") or None)


def test_a_fork_with_an_edited_state(browser: Browser, served: Server, store: Path) -> None:
    opened(browser, served, "/thread", name=scene.BOOK, at="@4")
    browser.click("#part-chosen .menu summary")
    name = browser.find("#part-chosen input[name=name]")
    name.clear()
    name.send_keys("writer/mine")
    browser.click("a[data-fetch=edit]")
    area = browser.find("textarea[name=state]")
    assert '"chapter": 4' in (area.get_attribute("value") or "")
    area.clear()
    area.send_keys('{"messages": [], "chapter": 40}')
    assert browser.find("input[name=edited]").is_selected(), "who edits it means it"
    browser.click("form[action$='/act/fork'] button")
    browser.wait(lambda: "with your edited state" in browser.text() or None)
    browser.click("button.sure")
    browser.wait(lambda: "writer/mine" in browser.text("h1") or None)
    assert "The thread was forked." in browser.text(".done")
    assert "forked from" in browser.text()
    with holdfast.open(store) as hf:
        assert hf.thread("writer/mine").load("@-1").state == {"messages": [], "chapter": 40}
    assert browser.complaints() == []


def test_a_question_is_answered(browser: Browser, served: Server, store: Path) -> None:
    opened(browser, served)
    before = int(browser.text("nav .badge").split()[0])
    article = next(each for each in browser.all("article") if "approve?" in each.text)
    article.find_element("css selector", "button[value=true]").click()
    browser.wait(lambda: "Confirm" in browser.text("h1") or None)
    browser.click("button.sure")
    browser.wait(lambda: "The question was answered." in browser.text(".done") or None)
    assert browser.text("h1") == "Inbox"
    assert int(browser.text("nav .badge").split()[0]) == before - 1
    with holdfast.open(store) as hf:
        assert [each.result for each in hf.effects(scene.APPROVAL) if each.by] == [True]


def test_steps_are_compared(browser: Browser, served: Server) -> None:
    opened(browser, served, "/thread", name=scene.BOOK, at="@-1")
    assert "$.chapter" in browser.text("#changes")
    box = browser.find("#against")
    box.clear()
    box.send_keys("@1", Keys.ENTER)
    browser.wait(lambda: "since step 1" in browser.text("#changes") or None)
    assert browser.all(".changes li")


@pytest.mark.parametrize("text", ["", "plain"])
def test_hostile_content_does_nothing(browser: Browser, served: Server, text: str) -> None:
    opened(browser, served, "/thread", name=scene.HOSTILE_THREAD, at="@-1", text=text)
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert browser.driver.title != "owned"
    assert not browser.all("main img")
    assert not browser.all("main script")
    assert "<script>document.title='owned'</script>" in browser.text("body")
    assert browser.complaints() == []


def test_even_markup_that_got_through_would_not_run(browser: Browser, served: Server) -> None:
    opened(browser, served)
    browser.run(_SMUGGLED)
    browser.run("fetch('http://127.0.0.1:9/').catch(() => { document.body.dataset.kept = 1 })")
    browser.find("body[data-kept]")
    assert "Inbox" in browser.driver.title
    assert any("Content Security Policy" in said for said in browser.complaints())


def test_another_browser_without_the_token_sees_nothing(browser: Browser, served: Server) -> None:
    browser.go(served.address("/"))
    assert "token" in browser.text("body")
    assert scene.BOOK not in browser.driver.page_source


def test_a_link_opened_from_another_site_leads_here(browser: Browser, served: Server) -> None:
    """From a chat, an issue or a terminal in a browser: with the token at first, and without once it is known."""

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            links = f'<a id=first href="{served.url}">x</a><a id=step href="{step}">y</a>'
            self.wfile.write(links.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called there
            pass

    step = served.address("/thread", name=scene.BOOK, at="@4")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for link, heading in (("#first", "Inbox"), ("#step", scene.BOOK)):
            browser.go(f"http://localhost:{server.server_port}/")
            browser.click(link)
            browser.wait(lambda: served.at in browser.driver.current_url or None)
            assert heading in (browser.find("h1").get_attribute("textContent") or "")
        server.shutdown()
    assert "token" not in browser.driver.current_url


def test_a_long_run_is_usable_at_once(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "long.db"
    with holdfast.open(path, durability="off") as hf:
        scene.long_run(hf, "long", LONG)
    server = WarmServer(path)
    try:
        opened(browser, server)
        # Whatever the machine does besides: the best of three.
        browser.go(server.address("/thread", name="long"))
        browser.find("html[data-ready]")
        first = len(browser.all("ol.steps a[data-step]"))
        assert 50 <= first <= 300, "not all of them at once"
        assert len(browser.all("ol.steps .called")) == first, "each step with its calls"
        browser.run("const list = document.querySelector('ol.steps'); list.scrollTo(0, list.scrollHeight)")
        browser.wait(lambda: len(browser.all("ol.steps a[data-step]")) > first or None)
        assert f"<b>{LONG - 150}</b>" in browser.driver.page_source
    finally:
        server.end()


def test_what_a_run_does_is_seen_while_it_does_it(browser: Browser, served: Server, store: Path) -> None:
    opened(browser, served, "/threads", q="live")
    every = holdfast.EveryN(1)
    with holdfast.open(store) as hf, hf.run("live/run", start={"messages": []}, policy=every) as run:
        for step in run.steps():
            if step == 1:
                browser.wait(lambda: browser.all('a[data-key="live/run"]') or None)
                assert "running" in browser.text()
                browser.click('a[data-key="live/run"]')
                browser.wait(lambda: browser.text("h1") == "live/run" or None)
            elif step == 4:
                browser.wait(lambda: browser.text("ol.steps li:first-child b") == "3" or None)
                browser.wait(lambda: browser.text("#part-chosen h2") == "Step 3" or None)
                run.finish("done")
                break
    browser.wait(lambda: "completed" in browser.text(".facts") or None)
    assert browser.text("#live") == "live"


def test_verify_tells_how_far_it_is_and_what_it_found(browser: Browser, served: Server) -> None:
    opened(browser, served, "/store")
    browser.click("form[action$='/act/verify'] button")
    browser.wait(lambda: "no problems" in browser.text() or None)


def test_a_name_with_everything_in_it_has_a_page(browser: Browser, served: Server) -> None:
    opened(browser, served)
    browser.go(f"{served.at}/thread?name={quote(scene.HOSTILE_THREAD, safe='')}")
    browser.find("html[data-ready]")
    assert "<script>" in browser.text("h1")
    assert browser.text("#part-chosen h2") == "Step 1"
