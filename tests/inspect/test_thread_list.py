"""The list of threads: what each stands as, filters, orders, pages."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import InvalidArgument
from holdfast.inspect import Filter, Order, ThreadLine, threads
from holdfast.stores.contract import Store, ThreadRow
from tests.cases import for_each
from tests.inspect.conftest import started, work
from tests.runs.conftest import World

START: dict[str, Any] = {"messages": []}


def names(found: tuple[ThreadLine, ...]) -> list[str]:
    return [line.name for line in found]


@pytest.fixture
def filled(world: World) -> World:
    hf = world.open()
    started(world, "interrupted")
    with hf.run("asks", start=START) as run:
        run.wait("approve", {"amount": 3})
    with hf.run("sleeps", start=START) as run:
        run.sleep(3600)
    with hf.run("done", start=START, agent="clerk") as run:
        work(run, 2)
        run.finish("ok")
    with hf.run("idle", start=START):
        pass
    started(world, "doubtful")
    with hf.run("doubtful") as run:
        work(run, 2, then="post")  # the tool is asked about: the block ends there
    hf.submit("clerk", "queued", start=START)
    hf.thread("plain").save({"n": 1}, usage={"input": 70, "output": 7, "cost": 0.5})
    return world


def test_each_thread_stands_as_what_its_run_is_doing(filled: World) -> None:
    page = threads(filled.open())
    assert {line.name: line.status for line in page.threads} == {
        "interrupted": "interrupted",
        "asks": "waiting",
        "sleeps": "waiting",
        "done": "completed",
        "idle": "idle",
        "doubtful": "in doubt",
        "queued": "queued",
        "plain": "running",
    }
    assert page.after is None
    assert page.lost == ()


def test_a_run_that_somebody_holds_is_running(world: World) -> None:
    with world.running("held", start=START):
        [line] = threads(world.open()).threads
        assert line.status == "running"


def test_what_a_line_tells(filled: World) -> None:
    lines = {line.name: line for line in threads(filled.open()).threads}
    assert lines["asks"].waits_for == "approve"
    assert lines["sleeps"].waits_for is None
    assert lines["doubtful"].waits_for == "post"
    assert lines["interrupted"].in_doubt == lines["doubtful"].in_doubt == 1
    assert (lines["interrupted"].crashed, lines["interrupted"].resumed) == (2, 2)
    assert (lines["doubtful"].crashed, lines["doubtful"].resumed) == (3, 3)
    assert lines["done"].agent == "clerk"
    assert lines["done"].tokens == 26  # two replies: nobody else says
    assert (lines["plain"].tokens, lines["plain"].cost) == (77, 0.5)
    assert lines["idle"].tokens is None
    assert lines["queued"].handler == "clerk"
    assert (lines["interrupted"].step, lines["interrupted"].count) == (2, 3)


@for_each(
    ("which", "found"),
    [
        (Filter(prefix="do"), ["done", "doubtful"]),
        (Filter(contains="LE"), ["idle", "sleeps"]),
        (Filter(status="interrupted"), ["interrupted"]),
        (Filter(status="in doubt"), ["doubtful", "interrupted"]),
        (Filter(status="waiting"), ["asks", "sleeps"]),
        (Filter(status="running"), []),
        (Filter(status="in doubt", prefix="i"), ["interrupted"]),
        (Filter(agent="clerk"), ["done"]),
        (Filter(older_than=3600), []),
        (Filter(newer_than=3600, prefix="p"), ["plain"]),
    ],
)
@for_each("order", ["name", "oldest"])
def test_filters(filled: World, which: Filter, found: list[str], order: Order) -> None:
    assert sorted(names(threads(filled.open(), which, order=order).threads)) == found


@for_each("order", ["name", "newest", "oldest", "largest", "longest"])
@for_each("which", [Filter(), Filter(status="waiting"), Filter(status="in doubt")])
def test_pages_one_after_the_other_are_the_whole(filled: World, order: Order, which: Filter) -> None:
    hf = filled.open()
    whole = names(threads(hf, which, order=order).threads)
    paged: list[str] = []
    after: str | None = None
    while True:
        page = threads(hf, which, order=order, after=after, limit=1)
        paged += names(page.threads)
        after = page.after
        if after is None:
            break
    assert paged == whole
    assert len(set(whole)) == len(whole) > 1


def test_orders(world: World) -> None:
    hf = world.open()
    for name, size, steps in (("b", 10, 3), ("a", 500, 1), ("c", 100, 2)):
        thread = hf.thread(name)
        for _ in range(steps):
            thread.save({"text": "x" * size})
    found = {order: "".join(names(threads(hf, order=order).threads)) for order in ("name", "largest", "longest")}
    assert found == {"name": "abc", "largest": "acb", "longest": "bca"}
    assert (
        names(threads(hf, order="newest").threads)
        == names(threads(hf, order="oldest").threads)[::-1]
        == ["c", "a", "b"]
    )


@pytest.mark.parametrize("order", ["newest", "oldest", "largest", "longest"])
def test_the_next_page_does_not_depend_on_the_thread_that_the_last_ended_with(world: World, order: Order) -> None:
    """On a live store it is saved again, or dropped, before somebody asks for more."""
    hf = world.open()
    for name in "abcdefgh":
        hf.thread(name).save({"text": "x" * 10})
    whole = names(threads(hf, order=order).threads)
    first = threads(hf, order=order, limit=3)
    assert names(first.threads) == whole[:3]
    hf.thread(whole[2]).save({"text": "x" * 20})
    second = threads(hf, order=order, after=first.after, limit=2)
    assert names(second.threads) == whole[3:5]
    hf.thread(whole[4]).drop()
    third = threads(hf, order=order, after=second.after, limit=9)
    assert [name for name in names(third.threads) if name != whole[2]] == whole[5:]


def test_where_to_go_on_in_an_order_is_what_a_page_gave(world: World) -> None:
    hf = world.open()
    hf.thread("a:1").save({})
    for odd in ("a", "x:a", "9" * 5000 + ":a", ":"):
        with pytest.raises(InvalidArgument, match="the `after` of the previous page"):
            threads(hf, order="newest", after=odd)


class Counted:
    """A store that counts what is read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = 0
        self.rows = 0

    def __getattr__(self, name: str) -> Any:
        self.reads += 1
        return getattr(self._store, name)

    def threads(self, **given: Any) -> list[ThreadRow]:
        found = self._store.threads(**given)
        self.rows += len(found)
        return found


def test_the_first_page_does_not_read_all(world: World) -> None:
    hf = world.open()
    for number in range(300):
        hf.thread(f"t{number:03}").save({"n": number})
    counted: list[Counted] = []

    def count(store: Store) -> Any:
        counted.append(Counted(store))
        return counted[0]

    page = threads(world.open(store=count), limit=10)
    assert names(page.threads) == [f"t{number:03}" for number in range(10)]
    assert page.after == "t009"
    assert counted[0].rows == 11  # one more tells that there are more
    assert counted[0].reads < 60


@pytest.mark.parametrize("given", [{"limit": -1}, {"order": "best"}, {"after": 3}], ids=str)
def test_what_cannot_be_meant_is_refused(world: World, given: Any) -> None:
    with pytest.raises(InvalidArgument):
        threads(world.open(), **given)


def test_a_status_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="status must be one of queued"):
        Filter(status="busy")  # type: ignore[arg-type] # what is refused


def test_a_thread_that_was_only_saved_is_not_among_those_that_run(world: World) -> None:
    hf = world.open()
    hf.thread("saved").save({"n": 1})
    with hf.run("run", start={"n": 0}) as run:
        found = threads(hf, Filter(status="running"))
        assert [line.name for line in found.threads] == ["run"]
        run.finish()
