"""Marks: against one kept outside, a store that was put back shows; what is only older does not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Cipher, InvalidArgument
from holdfast.threads import fingerprint
from holdfast.threads.verify import verify
from tests.covers import covers
from tests.threads.tables import Tables
from tests.threads.wholes import CIPHER, KINDS, fill, opened, shown, state_at


@pytest.fixture(params=[None, "cipher"], ids=["plain", "encrypted"])
def cipher(request: pytest.FixtureRequest) -> Any:
    return None if request.param is None else CIPHER


@pytest.mark.parametrize("kind", KINDS)
def test_what_goes_on_does_not_go_back(kind: str, cipher: Any, tmp_path: Path) -> None:
    with opened(kind, tmp_path, cipher=cipher) as hf:
        assert hf.verify(fingerprint=hf.fingerprint()).ok
        fill(hf)
        marks = [hf.fingerprint()]
        thread = hf.thread("t")
        thread.save(state_at(2))
        marks.append(hf.fingerprint())
        thread.rewind("@4")
        marks.append(hf.fingerprint())
        thread.delete("@5")
        hf.thread("\udcff new").save({"n": 1})
        marks.append(hf.fingerprint())
        hf.optimize()
        for mark in marks:
            assert hf.verify(deep=False, fingerprint=mark).problems == ()


def kept(kind: str, folder: Path) -> Callable[[], None]:
    """Keep a store as it is now; what is returned puts that in the place of the store."""
    if kind == "postgres":
        tables = Tables("postgres", folder)
        content = tables.content()
        return lambda: tables.put_back(content)
    place, old = folder / ("store.db" if kind == "sqlite" else "store"), folder / "old"
    shutil.copytree(place, old) if place.is_dir() else shutil.copy(place, old)

    def put_back() -> None:
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        shutil.copytree(old, place) if old.is_dir() else shutil.copy(old, place)

    return put_back


@covers("G5")
@pytest.mark.parametrize("kind", ["sqlite", "directory", "postgres"])
def test_an_older_copy_in_the_place_of_the_store_shows(kind: str, cipher: Any, tmp_path: Path) -> None:
    with opened(kind, tmp_path, cipher=cipher) as hf:
        fill(hf)
    put_back = kept(kind, tmp_path)
    with opened(kind, tmp_path, cipher=cipher) as hf:
        hf.thread("t").save(state_at(2))
        hf.thread("new").save({"n": 1})
        with hf.run("run", start={}, turn="again") as run:
            run.model(lambda: 1)
            run.finish("more")
        mark = hf.fingerprint()
    put_back()
    with opened(kind, tmp_path, cipher=cipher) as hf:
        assert hf.verify().ok
        found = {problem.thread: problem for problem in hf.verify(deep=False, fingerprint=mark).problems}
    assert set(found) == {"new", "run", "t"}
    assert found["t"].seqs == (10,)
    assert "it has 9 checkpoints, and had 10" in found["t"].what
    assert "it is missing" in found["new"].what


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_rewind_that_was_taken_back_shows(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as hf:
        fill(hf)
    put_back = kept(kind, tmp_path)
    with opened(kind, tmp_path) as hf:
        hf.thread("t").rewind("@4")
        mark = hf.fingerprint()
    put_back()
    with opened(kind, tmp_path) as hf:
        (problem,) = hf.verify(deep=False, fingerprint=mark).problems
    assert problem.thread == "t"
    assert "moves, and had" in problem.what


def test_a_thread_of_the_same_name_and_length_is_told_apart() -> None:
    with holdfast.open("memory:") as hf:
        hf.thread("t").save({"n": 1})
        mark = hf.fingerprint()
        hf.thread("t").drop()
        hf.thread("t").save({"n": 2})
        (problem,) = hf.verify(fingerprint=mark).problems
        assert problem.what == "it is not the checkpoint that was there when the fingerprint was made"
        assert problem.seqs == (1,)


def test_a_journal_that_went_back_shows() -> None:
    with holdfast.open("memory:") as hf:
        fill(hf)
        store, mark = hf.context.store, hf.fingerprint()
        report = verify(shown(store, last_entry=lambda number: max(0, store.last_entry(number) - 1)), fingerprint=mark)
    (problem,) = report.problems
    assert problem.thread == "run"
    assert problem.what == "its journal is older than the fingerprint: it has 2 entries, and had 3"


def test_a_mark_that_was_changed_is_no_mark(cipher: Any) -> None:
    with holdfast.open("memory:", cipher=cipher) as hf:
        fill(hf)
        mark = hf.fingerprint()
        for changed in (
            mark.replace('"t"', '"u"'),
            "\n".join(line for line in mark.splitlines() if '"run"' not in line),
            mark[:-10],
            "",
            "holdfast fingerprint 1 ",
            "a mark",
        ):
            with pytest.raises(InvalidArgument, match="fingerprint"):
                hf.verify(fingerprint=changed)


def test_a_mark_is_of_one_namespace_and_of_one_key(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "a.db", durability="off") as hf:
        mark = hf.fingerprint()
    with (
        holdfast.open(tmp_path / "a.db", namespace="other", durability="off") as hf,
        pytest.raises(InvalidArgument, match="another namespace"),
    ):
        hf.verify(fingerprint=mark)
    other = Cipher(keys={"k": bytes(32)}, current="k")
    with holdfast.open(tmp_path / "b.db", cipher=other, durability="off") as hf:
        with pytest.raises(InvalidArgument, match="other keys"):
            hf.verify(fingerprint=mark)
        keyed = hf.fingerprint()
    with holdfast.open(tmp_path / "a.db", durability="off") as hf, pytest.raises(InvalidArgument, match="other keys"):
        hf.verify(fingerprint=keyed)


def test_a_mark_stays_what_it_is_when_keys_are_changed(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "a.db", cipher=CIPHER, durability="off") as hf:
        fill(hf)
        mark = hf.fingerprint()
    keys = {"k": bytes(range(32)), "next": bytes(32)}
    with holdfast.open(tmp_path / "a.db", cipher=Cipher(keys=keys, current="next"), durability="off") as hf:
        assert hf.rekey()
        assert hf.verify(fingerprint=mark).ok


def test_a_mark_takes_a_line_per_thread() -> None:
    with holdfast.open("memory:") as hf:
        for n in range(50):
            hf.thread(f"thread {n}").save({"n": n})
        mark = hf.fingerprint()
    assert len(mark.splitlines()) == 52
    assert len(mark) < 52 * 120


def test_a_thread_that_is_dropped_meanwhile_is_not_in_it(tmp_path: Path) -> None:
    for kind in KINDS:
        with opened(kind, tmp_path) as hf:
            for name in ("a", "b"):
                hf.thread(name).save({"n": 1})
            store = hf.context.store

            def listed(*, store: Any = store, hf: Any = hf, **page: Any) -> Any:
                found = store.threads(**page)
                if found:
                    hf.thread("a").drop()
                return found

            text = fingerprint.fingerprint(shown(store, threads=listed), "default")
            assert [line.startswith('["b"') for line in text.splitlines()[1:-1]] == [True]


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '["t", 1, 4000000000000, "", 1, "", 0]',
        '["t", -1, -1, "", -1, "", -1]',
        '["\\ud800", 1, 1, "", 1, "", 0]',
        '["t", 1, 1, "", 1180591620717411303424, "", 0]',
    ],
    ids=["nested", "long", "negative", "surrogate", "large"],
)
def test_whatever_a_text_says_it_is_compared_or_refused(line: str) -> None:
    """Without a cipher anybody can sign one."""
    with holdfast.open("memory:") as hf:
        hf.thread("t").save({"n": 1})
        first = hf.fingerprint().splitlines()[0]
        body = f"{first}\n{line}\n"
        text = f"{body}{fingerprint._signature(hf.context.store, body)}\n"
        try:
            (problem,) = hf.verify(fingerprint=text).problems
            assert len(problem.seqs) <= 10_000
        except InvalidArgument:
            pass
        for odd in ("\ud800", "\N{LATIN SMALL LETTER A WITH DIAERESIS}"):
            with pytest.raises(InvalidArgument, match="fingerprint"):
                hf.verify(fingerprint=text.replace("t", odd, 1) + odd)
            with pytest.raises(InvalidArgument, match="fingerprint"):
                hf.verify(fingerprint=text + odd)
