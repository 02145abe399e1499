"""A damaged store behind the page: what is whole is shown, what is not is said, and no other thread suffers."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast
from tests.threads.tables import Tables
from tests.ui import scene
from tests.ui.conftest import Page

DAMAGES = {
    "a run": "UPDATE run SET updated_at = updated_at + 1",
    "an entry of a journal": "UPDATE entry SET record = zeroblob(length(record)) WHERE row_key & 4294967295 = 2",
}


@pytest.fixture(params=DAMAGES)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Tables:
    """A store with something of everything, of which one kind of record is hurt wherever there is one."""
    tables = Tables("sqlite", tmp_path)
    with tables.opened() as hf:
        scene.fill(hf)
    tables.execute(DAMAGES[request.param])
    return tables


def test_every_page_is_there(damaged: Tables) -> None:
    with damaged.opened() as hf:
        page = Page(hf, allow_write=True)
        for path in (
            "/",
            "/threads",
            "/threads?order=name",
            "/search?q=a",
            "/workers",
            "/store",
            "/store?part=figures",
        ):
            assert page.ask("GET", path).status_code == 200, path
        for info in hf.threads():
            for part in (None, "steps", "chosen", "recovery", "plots", "head"):
                query = {"name": info.name} if part is None else {"name": info.name, "part": part}
                assert page.get("/thread", **query).status_code == 200, (info.name, part)
            for path in ("/thread", "/state"):
                answer = page.get(path, name=info.name, at=_head(hf, info.name))
                assert answer.status_code == 200, (info.name, path, answer.text[-300:])


def test_what_is_hurt_is_said(damaged: Tables) -> None:
    with damaged.opened() as hf:
        page = Page(hf)
        timeline = page.get("/thread", name="payments").text
        assert 'class="bad"' in timeline
        assert timeline.count('class="name"') >= 3, "and its steps are shown"


def _head(hf: Holdfast, thread: str) -> str:
    head = hf.thread(thread).head()
    assert head is not None
    return head.id


def test_a_store_that_is_whole_says_nothing_of_the_kind(memory: Holdfast) -> None:
    assert 'class="bad"' not in Page(memory).get("/thread", name="payments").text
    assert holdfast.Damaged.__name__ not in Page(memory).get("/threads").text
