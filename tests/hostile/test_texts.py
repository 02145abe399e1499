"""Texts that somebody else chose, wherever one is taken: refused with InvalidArgument, or exactly what comes back."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Holdfast
from holdfast.errors import HoldfastError, InvalidArgument, NotFound
from tests.covers import covers
from tests.crash.ledger import note
from tests.hostile.texts import TEXTS
from tests.selection import every_store, tries

# Every text is tried as a name in each run; the rest of the corpus elsewhere, where a text costs more, in the full lab.
SOME = TEXTS if os.environ.get("HOLDFAST_LAB") == "full" else TEXTS[::7]

ANY = st.one_of(
    st.sampled_from([text for text in TEXTS if len(text) < 1000]),
    st.text(st.characters(exclude_categories=()), min_size=1, max_size=40),
    st.builds(
        "".join, st.lists(st.sampled_from(["..", "/", "\\", "\0", "'", '"', ";", "%", "A", "a", "\ud800", "~", "@"]))
    ),
)


@contextmanager
def refusing() -> Generator[None]:
    """What may be refused may be so in one way only."""
    try:
        yield
    except InvalidArgument as error:
        assert len(str(error)) < 600  # noqa: PT017 - it may be refused, and need not


@contextmanager
def nothing_around(folder: Path) -> Generator[None]:
    """Files are made in the folder and nowhere around it."""
    around = folder.parent
    beside = folder.name
    before = {path for path in around.iterdir() if path.name != beside}
    yield
    assert {path for path in around.iterdir() if path.name != beside} == before


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """Where the store lies, with room around it for what climbs out."""
    folder = tmp_path / "a" / "b" / "inside"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def anywhere(request: pytest.FixtureRequest, url: str, inside: Path) -> str:
    """The store of each kind, deep in a folder."""
    if url.startswith("dir:"):
        return f"dir:{inside}/agents"
    return url if url.startswith(("memory", "postgres")) else str(inside / "agent.db")


@every_store("each store writes names in its own way")
class TestNamesOfThreads:
    @covers("C2", "C3", "continuum/SessionId")
    def test_each_is_a_thread_of_its_own(self, anywhere: str, inside: Path) -> None:
        taken: list[str] = []
        with nothing_around(inside), nothing_around(inside.parent), holdfast.open(anywhere, durability="off") as hf:
            for text in TEXTS:
                with refusing():
                    hf.thread(text).save({"name": text[:100], "number": len(taken)})
                    taken.append(text)
            assert sorted(info.name for info in hf.threads()) == sorted(taken)
            for number, text in enumerate(taken):
                found = hf.thread(text).latest()
                assert found is not None
                assert found.thread == text
                assert found.state == {"name": text[:100], "number": number}
            assert hf.verify().problems == ()
        kinds = {"dir": "directory", "postgresql": "postgres", "memory": "memory"}
        note("hostile", kinds.get(anywhere.partition(":")[0], "sqlite"), texts=len(TEXTS))

    @covers("C1", "C5")
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=tries(25, 10))
    @given(names=st.lists(ANY, min_size=1, max_size=5, unique=True))
    def test_any_text_hits_no_other_thread(self, hf: Holdfast, names: list[str]) -> None:
        hf.thread("bystander").save({"untouched": True})
        taken: list[str] = []
        for name in (name for name in names if name not in ("", "bystander")):
            with refusing():
                hf.thread(name).save({"name": name})
                taken.append(name)
        listed = {info.name for info in hf.threads()}
        assert listed == {"bystander", *taken}
        for name in taken:
            found = hf.thread(name).latest()
            assert found is not None
            assert found.state == {"name": name}
            assert name in {info.name for info in hf.threads(prefix=name)}
            assert all(info.name.startswith(name) for info in hf.threads(prefix=name))
            hf.thread(name).drop()
        bystander = hf.thread("bystander").latest()
        assert bystander is not None
        assert bystander.state == {"untouched": True}
        assert [info.name for info in hf.threads()] == ["bystander"]

    def test_no_name_can_be_taken_for_a_reference(self, hf: Holdfast) -> None:
        hf.thread("main").save({"n": 1})
        for text in ("main@-1", "@-1", "main@1", "main:1"):
            hf.thread(text).save({"own": text})
        found = hf.thread("main@-1").latest()
        assert found is not None
        assert found.state == {"own": "main@-1"}


@covers("C11", "F1", "cortex/CheckpointMetadata.new")
def test_what_is_said_of_a_checkpoint_comes_back(hf: Holdfast) -> None:
    thread = hf.thread("main")
    labels: dict[str, int] = {}
    for text in SOME:
        said: list[dict[str, Any]] = [
            {"label": text},
            {"tags": [text, "tag"]},
            {"metadata": {text: text[:100]}},
            {"reason": text, "agent": text},
        ]
        for given_ in said:
            with refusing():
                made = thread.save({"n": 1}, **given_)
                found = thread.load(made.id)
                assert found.label == given_.get("label")
                assert found.tags == tuple(given_.get("tags", ()))
                assert found.metadata == given_.get("metadata", {})
                assert (found.reason, found.agent) == (given_.get("reason"), given_.get("agent"))
                if found.label is not None:
                    labels[found.label] = found.seq
    for label, seq in labels.items():
        found_one = thread.find(label=label)
        assert found_one is not None
        assert found_one.seq == seq


@covers("C5")
@every_store("each store filters by its own query")
def test_filters_find_what_they_name_and_nothing_else(hf: Holdfast) -> None:
    thread = hf.thread("main")
    thread.save({"n": 1}, label="a label", tags=["a tag"], metadata={"user": "somebody"})
    for text in SOME:
        with refusing():
            assert thread.find(label=text) is None
        with refusing():
            assert thread.find(tag=text) is None
        with refusing():
            assert list(thread.history(label=text)) == []
        with refusing():
            assert list(hf.threads(prefix=text)) == []
        with refusing():
            assert [info.name for info in hf.threads(after=text)] == (["main"] if text < "main" else [])
        try:
            thread.load(text)
        except (NotFound, InvalidArgument) as error:
            assert len(str(error)) < 1000  # noqa: PT017 - either error will do
        else:
            assert text in ("@-1", "@1", "1", "00000001")


def test_texts_of_a_run_come_back(hf: Holdfast) -> None:
    shorts = [text for text in SOME if len(text) < 1000]
    for number, text in enumerate(shorts):
        thread = f"run {number}"
        with refusing(), hf.run(thread, start={"n": 0}, turn=text) as run:
            assert run.model(lambda: "one", key=text) == "one"
            run.finish(text)
        with refusing(), hf.run(thread, start={"n": 0}, turn=text) as run:
            assert run.result == text
        with refusing(), hf.run(f"{thread} asks", start={"n": 0}) as run:
            run.wait(text)
    asked = {question.thread: question.name for question in hf.waiting()}
    for number, text in enumerate(shorts):
        thread = f"run {number} asks"
        if thread in asked:
            assert asked[thread] == text
            assert [question.thread for question in hf.waiting(text)] == [thread]
            hf.answer(thread, text, number)
            with hf.run(thread) as run:
                assert run.wait(text) == number
    for number, text in enumerate(shorts):
        found = hf.thread(f"run {number}").latest()
        if found is not None:
            assert {effect.key.partition("/")[2] for effect in hf.effects(f"run {number}")} >= {text}


def test_a_run_of_a_thread_of_any_name_is_resumed(hf: Holdfast) -> None:
    for text in (text for text in SOME if len(text) < 1000):
        with refusing(), hf.run(text, start={"n": 0}) as run:
            assert run.model(lambda: "one") == "one"
            run.finish("done")
        with refusing(), hf.run(text, start={"n": 0}) as run:
            assert run.result == "done"


@every_store("each store writes names in its own way")
def test_namespaces_of_any_name_are_apart(anywhere: str, inside: Path) -> None:
    if anywhere == "memory:":
        return  # each handle is a store of its own
    made: list[str] = []
    with nothing_around(inside), nothing_around(inside.parent):
        for text in SOME:
            with refusing(), holdfast.open(anywhere, namespace=text, durability="off") as hf:
                assert list(hf.threads()) == []
                hf.thread("main").save({"namespace": text[:100]})
                made.append(text)
        for text in made:
            with holdfast.open(anywhere, namespace=text, durability="off") as hf:
                found = hf.thread("main").latest()
                assert found is not None
                assert found.state == {"namespace": text[:100]}


def test_errors_that_name_a_text_do_not_repeat_it_whole(hf: Holdfast) -> None:
    name = "n" * (1 << 20)
    for provoke in (lambda: hf.thread(name).load("1"), lambda: hf.effects(name), lambda: hf.answer(name, "q", 1)):
        with pytest.raises(HoldfastError) as caught:
            provoke()
        assert len(str(caught.value)) < 1000
