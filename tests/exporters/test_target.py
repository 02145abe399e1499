"""Where an export goes, and what goes there: mistakes are told before anything is read or written."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import holdfast
from holdfast import Damaged, Holdfast, InvalidArgument, NotFound
from holdfast.exporters import export_html, export_jsonl, export_markdown, export_otel
from tests.threads.wholes import fill, opened

Export = Callable[[Holdfast, Any], object]


@pytest.fixture
def memory() -> Iterator[Holdfast]:
    with holdfast.open("memory:") as hf:
        hf.thread("lib").save({"messages": [{"role": "user", "content": "Hello"}]})
        yield hf


def markdown(hf: Holdfast, target: Any) -> object:
    return export_markdown(hf, target, "lib")


def html(hf: Holdfast, target: Any) -> object:
    return export_html(hf, target, "lib")


@pytest.mark.parametrize("export", [markdown, html, export_otel, export_jsonl])
@pytest.mark.parametrize("target", [io.StringIO(), 3, None])
def test_what_takes_no_bytes_is_no_target(memory: Holdfast, export: Export, target: object) -> None:
    with pytest.raises(InvalidArgument, match='a path, or a binary file such as open\\(path, "wb"\\)'):
        export(memory, target)


def test_a_file_that_is_open_for_text_stays_empty(memory: Holdfast, tmp_path: Path) -> None:
    with (tmp_path / "out.md").open("w") as file, pytest.raises(InvalidArgument, match="a binary file"):
        markdown(memory, file)
    assert (tmp_path / "out.md").read_bytes() == b""


@pytest.mark.parametrize("export", [export_otel, export_jsonl])
def test_one_name_is_a_list_of_one(memory: Holdfast, export: Callable[..., object], tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="threads must be a list of names"):
        export(memory, tmp_path / "out", threads="lib")
    assert not (tmp_path / "out").exists()
    export(memory, tmp_path / "out", threads=["lib"])


def test_a_file_is_new_and_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "it.jsonl"
    with opened("memory", tmp_path) as hf:
        fill(hf)
        assert export_jsonl(hf, path).bytes == path.stat().st_size
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(InvalidArgument, match="already exists; nothing was written"):
            export_jsonl(hf, path)
        with pytest.raises(NotFound):
            export_jsonl(hf, tmp_path / "other", threads=["none"])

        def fail(_: object) -> NoReturn:
            raise Damaged("lost meanwhile")

        def break_off(_: object) -> NoReturn:
            raise KeyboardInterrupt

        monkeypatch.setattr(hf.context.store, "blob", fail)
        export_jsonl(hf, tmp_path / "other")  # found before anything of it is written
        monkeypatch.setattr(hf.context.store, "last_entry", break_off)
        with pytest.raises(KeyboardInterrupt):
            export_jsonl(hf, tmp_path / "another")
    assert not (tmp_path / "another").exists()
