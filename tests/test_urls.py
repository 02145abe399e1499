"""Stores that Holdfast does not have itself: an object, or a URL whose scheme an installed package provides."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import Closed, InvalidArgument, NotInstalled, WrongKey
from holdfast.stores.contract import Store
from holdfast.urls import ENTRY_POINTS, open_plain

MODULE = """
from holdfast.urls import open_plain

def open_shelf(url, *, namespace, durability):
    path = url.removeprefix("shelf:")
    return object() if path == "broken" else open_plain(path, namespace=namespace, durability=durability)
"""


class Watched:
    """A store that notes the verbs that are called."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        return getattr(self._store, name)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    return Watched(open_plain(tmp_path / "a.db", namespace="default", durability="off"))


def test_a_store_object_is_used_as_it_is(store: Any, tmp_path: Path) -> None:
    with holdfast.open(store) as hf:
        hf.thread("t").save({"n": 1})
        assert "commit" in store.called
    with pytest.raises(Closed):
        store.head("t")
    with holdfast.open(tmp_path / "a.db") as hf:
        found = hf.thread("t").latest()
        assert found is not None
        assert found.state == {"n": 1}


def test_a_store_object_can_be_encrypted(store: Any, tmp_path: Path) -> None:
    with holdfast.open(store, cipher=holdfast.Cipher({"a": b"k" * 32}, "a")) as hf:
        hf.thread("t").save({"n": 1})
    with pytest.raises(WrongKey):
        holdfast.open(tmp_path / "a.db")


def test_an_object_that_lacks_verbs_is_refused() -> None:
    class Half:
        encoding = "packed"

        def commit(self, commit: object) -> None: ...

    half: Any = Half()
    with pytest.raises(InvalidArgument, match=r"not a store: it does not have .*\brewind\b.*; nothing was opened"):
        holdfast.open(half)
    nothing: Any = 5
    with pytest.raises(InvalidArgument, match="a store is named by"):
        holdfast.open(nothing)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that provides the scheme `shelf:`, and others that are Holdfast's own."""
    site = tmp_path / "site"
    info = site / "shelf_store-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "shelf_store.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf-store\nVersion: 1.0\n")
    named = "".join(f"{scheme} = shelf_store:open_shelf\n" for scheme in ("shelf", "dir", "sqlite", "C"))
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{named}")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "shelf_store", raising=False)


@pytest.mark.usefixtures("package")
def test_a_package_provides_a_scheme(tmp_path: Path) -> None:
    with holdfast.open(f"shelf:{tmp_path / 'b.db'}", namespace="mine") as hf:
        hf.thread("t").save({"n": 1})
    with holdfast.open(tmp_path / "b.db", namespace="mine") as hf:
        assert [thread.name for thread in hf.threads()] == ["t"]
    with pytest.raises(InvalidArgument, match="a store is named by"):
        holdfast.open("shelf:broken")


@pytest.mark.usefixtures("package")
def test_a_package_does_not_replace_a_scheme_of_holdfast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with holdfast.open("dir:folder") as hf:
        hf.thread("t").save({"n": 1})
    assert (tmp_path / "folder").is_dir()
    with pytest.raises(InvalidArgument, match="sqlite:///"):
        holdfast.open("sqlite:x")


def test_options_in_the_url_of_a_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="no options"):
        holdfast.open("sqlite:///a.db?mode=ro")
    assert list(tmp_path.iterdir()) == []
    holdfast.open(tmp_path / "a?.db").close()


def test_a_scheme_that_no_package_provides_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="there is no store for shelf: URLs"):
        holdfast.open("shelf://a/b")


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_the_extra_for_buckets_is_named_where_it_is_not_installed(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(NotInstalled, match=r"nothing was opened.*holdfast\[bucket\]"):
        holdfast.open(f"{scheme}://bucket/prefix")
