"""Live parts disturb nobody: what is typed, marked, opened or reached by the keyboard stays as the page changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.keys import Keys

import holdfast
from holdfast import Holdfast
from tests.ui import scene
from tests.ui.browser import Browser
from tests.ui.conftest import Server
from tests.ui.test_browser import opened

STATUSES = """
return performance.getEntriesByType('resource').filter(e => e.name.includes('part=rows')).map(e => e.responseStatus)
"""


@pytest.fixture
def hf(served: Server) -> Iterator[Holdfast]:
    """Somebody else who works in the store that is shown."""
    with holdfast.open(served.store) as opened_too:
        yield opened_too


def ask(hf: Holdfast, name: str) -> None:
    with hf.run(name, start={"n": 1}) as run:
        for _ in run.steps():
            run.wait("may I?")


def sign(browser: Browser, said: str) -> None:
    browser.wait(lambda: browser.text("#live") == said or None)


def test_what_is_typed_stays_when_the_focus_leaves_it(browser: Browser, served: Server, hf: Holdfast) -> None:
    opened(browser, served)
    box = "form[action$='/act/answer'] input[name=text]"
    browser.find(box).send_keys("half an answer")
    browser.run("document.activeElement.blur()")
    ask(hf, "another")
    sign(browser, "paused while you type")
    assert browser.find(box).get_attribute("value") == "half an answer"
    assert "another" not in browser.text("#part-items")
    browser.find(box).send_keys(Keys.CONTROL, "a")
    browser.find(box).send_keys(Keys.DELETE)
    browser.run("document.activeElement.blur()")
    browser.wait(lambda: "another" in browser.text("#part-items") or None)
    sign(browser, "live")


def test_a_choice_in_a_form_stays(browser: Browser, served: Server, hf: Holdfast) -> None:
    opened(browser, served, "/thread", name=scene.LETTERS)
    browser.click("#part-chosen .menu summary")
    browser.find("#part-chosen input[name=name]").send_keys("-b")
    browser.run("document.activeElement.blur()")
    hf.settle(scene.LETTERS, 3, holdfast.NotDone())
    sign(browser, "paused while you type")
    assert browser.find("#part-chosen input[name=name]").get_attribute("value") == f"{scene.LETTERS}-fork-b"


def test_who_stands_on_something_stays_there(browser: Browser, served: Server, hf: Holdfast) -> None:
    opened(browser, served, "/thread", name=scene.APPROVAL)
    browser.run("document.querySelector('#part-recovery summary').focus()")
    before = browser.text("#part-recovery")
    hf.answer(scene.APPROVAL, "approve?", True)
    browser.wait(lambda: browser.text("#part-recovery") != before or None)
    assert browser.run("return document.activeElement.tagName") == "SUMMARY"


def test_what_was_closed_stays_closed(browser: Browser, served: Server, hf: Holdfast) -> None:
    opened(browser, served, "/thread", name=scene.APPROVAL)
    browser.click("#part-recovery summary")
    before = browser.text("#part-recovery summary")
    hf.answer(scene.APPROVAL, "approve?", True)
    browser.wait(lambda: browser.text("#part-recovery summary") != before or None)
    assert browser.run("return document.querySelector('#part-recovery details').open") is False


def test_what_is_marked_can_be_copied(browser: Browser, served: Server, hf: Holdfast) -> None:
    opened(browser, served, "/thread", name=scene.APPROVAL)
    browser.run(
        "const range = document.createRange();"
        "document.querySelectorAll('#part-recovery details').forEach(each => { each.open = true });"
        "range.selectNodeContents(document.querySelector('#part-recovery .commands code'));"
        "getSelection().removeAllRanges(); getSelection().addRange(range)"
    )
    marked = browser.run("return String(getSelection())")
    assert "holdfast" in marked
    before = browser.text("#part-recovery")
    hf.answer(scene.APPROVAL, "approve?", True)
    sign(browser, "paused while text is selected")
    assert browser.run("return String(getSelection())") == marked
    browser.run("getSelection().removeAllRanges()")
    browser.wait(lambda: browser.text("#part-recovery") != before or None)


def test_the_place_in_a_list_is_kept_while_it_grows(browser: Browser, served: Server, hf: Holdfast) -> None:
    opened(browser, served, "/threads")
    browser.run("document.querySelector('a[data-key=\"payments\"]').focus()")
    hf.thread("a new one").save({})
    browser.find('a[data-key="a new one"]')
    assert browser.run("return document.activeElement.dataset.key") == "payments"


def test_ages_grow_without_anything_being_sent_again(browser: Browser, served: Server, hf: Holdfast) -> None:
    hf.thread("just saved").save({})  # its age is shown in seconds, so it changes soon
    opened(browser, served, "/threads")
    first = browser.text(".threads time")
    browser.wait(lambda: len(browser.run(STATUSES)) >= 2 or None)
    assert set(browser.run(STATUSES)) == {304}
    browser.wait(lambda: browser.text(".threads time") != first or None)


def test_who_reads_older_steps_is_told_that_the_list_stands_still(
    browser: Browser, served: Server, hf: Holdfast
) -> None:
    thread = hf.thread("long")
    for number in range(250):
        thread.save({"n": number})
    opened(browser, served, "/thread", name="long")
    browser.run("const list = document.querySelector('ol.steps'); list.scrollTo(0, list.scrollHeight)")
    browser.wait(lambda: len(browser.all(".steps a.name")) > 100 or None)
    sign(browser, "paused while older steps are shown")
