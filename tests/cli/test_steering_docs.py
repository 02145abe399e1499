"""docs/cli.md tells what the verbs that steer write as JSON.

After a change, `python -m tests.cli.test_steering_docs` writes that part of the page anew.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import holdfast
from holdfast.cli.main import main
from tests.cli.test_cli_docs import PAGE, shape
from tests.cli.test_steering import asking, in_doubt

_SHAPES = re.compile(r"^<!-- steering shapes -->\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)

GIVEN = (
    ("fork", "notes@1", "other"),
    ("rewind", "shop@0", "--dry-run"),
    ("label", "notes@1", "first"),
    ("tag", "notes@1", "good"),
    ("answer", "asks", "ok?", "1"),
    ("settle", "shop", "1", "--happened", "null"),
    ("cancel", "asks"),
    ("submit", "h", "new", "--start", "{}"),
    ("resume", "steered:handlers", "shop"),
    ("prune", "notes", "--keep-last", "0", "--dry-run"),
    ("drop", "notes", "--dry-run"),
    ("erase", "notes", "--dry-run"),
    ("optimize",),
    ("export", "--output", "out.jsonl"),
    ("import", "jsonl", "out.jsonl", "--dry-run"),
    ("completion", "fish"),
    ("demo",),
)


def shapes_text() -> str:
    """The shape of what each verb that steers writes as JSON."""
    told: dict[str, str] = {}
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        path = list(sys.path)
        Path("steered.py").write_text("handlers = {'h': lambda run: [run.wait('?') for _ in run.steps()]}\n")
        store = Path(folder) / "agent.db"
        with holdfast.open(store, durability="off") as hf:
            for n in range(3):
                hf.thread("notes").save({"n": n})
        in_doubt(store)
        asking(store)
        for words in GIVEN:
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as err:
                main([*words, *(() if words[0] == "demo" else ("--store", str(store))), "--json"])
            assert out.getvalue(), (words, err.getvalue())
            told[words[0]] = shape(json.loads(out.getvalue()))
        sys.path[:] = path
        sys.modules.pop("steered", None)
    return "".join(f"{verb}:\n  {text}\n" for verb, text in told.items())


def test_the_page_tells_the_shapes_of_json() -> None:
    [told] = _SHAPES.findall(PAGE.read_text("utf-8"))
    assert told == shapes_text(), "python -m tests.cli.test_steering_docs writes it anew"


def rewrite() -> None:
    text = _SHAPES.sub(lambda _: f"<!-- steering shapes -->\n\n```text\n{shapes_text()}```", PAGE.read_text("utf-8"))
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    os.environ.pop("HOLDFAST_KEY", None)
    rewrite()
    sys.exit(0)
