"""Export and import of JSON lines: threads move from one store to another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from holdfast.cli.terminal import Exit
from tests.cli.given import Said, opened, said, store

__all__ = ["said", "store"]  # fixtures


def test_export_and_import(store: Path, said: Said) -> None:
    code, told = said.json("export", "--output", "all.jsonl")
    assert code == Exit.OK
    assert (told["threads"], told["checkpoints"], told["entries"], told["ok"]) == (1, 3, 0, True)
    assert set(told) == {"target", "ok", "threads", "checkpoints", "entries", "bytes", "left_out"}
    code, out, err = said("export", "notes")
    assert code == Exit.OK
    # Each export has its own time and thread numbers.
    assert out.splitlines()[2:-2] == Path("all.jsonl").read_text().splitlines()[2:-2] != []
    assert err.startswith("1 thread, 3 checkpoints, 0 journal entries: ")
    assert said.refused("export", "--output", "all.jsonl")[0] == Exit.USAGE
    assert said.refused("export", "notes", "--prefix", "n")[0] == Exit.USAGE
    assert said.refused("export", "--json")[0] == Exit.USAGE
    code, out, _ = said("import", "jsonl", "all.jsonl", "--store", "dir:other")
    assert code == Exit.OK
    assert out.startswith("1 thread: 3 checkpoints")
    code, told = said.json("import", "jsonl", "all.jsonl", "--store", "dir:other")
    assert (code, told["checkpoints"], told["present"]) == (Exit.OK, 0, 3)
    assert said.refused("import", "jsonl", "none.jsonl")[0] == Exit.NOT_FOUND
    Path("cut").write_bytes(Path("all.jsonl").read_bytes()[:-300])
    assert said("import", "jsonl", "cut", "--store", "dir:third")[0] == Exit.ERROR


def test_export_to_a_pipe_that_closes(store: Path) -> None:
    with opened(store) as hf:
        hf.thread("large").save({"text": [f"line {n} " * 99 for n in range(4000)]})
    command = f"{sys.executable} -m holdfast export --store {store} | head -c 10"
    words = ("-c", f"{command}; exit ${{PIPESTATUS[0]}}")
    done = subprocess.run(["bash", *words], capture_output=True, text=True, check=False)  # noqa: S607 - any bash
    assert (done.returncode, done.stderr) == (Exit.UNREAD, "")
