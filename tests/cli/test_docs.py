"""docs/reference/cli.md lists the commands and what each writes as JSON; commands.md next to it has the help of every
command.

After a change of either, `python -m tests.cli.test_docs` writes these parts anew.
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
from typing import Any
from unittest import mock

import holdfast
from holdfast.cli.main import GROUPS, VERBS, main
from tests.cases import for_each
from tests.cli.given import asking, in_doubt
from tests.cli.looked import VERBS as LOOKING
from tests.cli.looked import fill

DOCS = Path(__file__).resolve().parent.parent.parent / "docs" / "reference"
PAGE, REFERENCE = DOCS / "cli.md", DOCS / "commands.md"
_HELP = re.compile(r"^## holdfast (\S+)\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PARTS = re.compile(r"^<!-- (commands|shapes|more shapes) -->\n\n(.*?)\n\n<!-- end -->$", re.MULTILINE | re.DOTALL)

STEERING = (
    ("fork", "notes@1", "other"),
    ("rewind", "shop@0", "--dry-run"),
    ("label", "notes@1", "first"),
    ("tag", "notes@1", "good"),
    ("answer", "asks", "ok?", "1"),
    ("settle", "shop", "1", "--happened", "null"),
    ("cancel", "asks"),
    ("submit", "h", "new", "--start", "{}"),
    ("resume", "steered:handlers", "shop"),
    ("result", "done"),
    ("prune", "notes", "--keep-last", "0", "--dry-run"),
    ("drop", "notes", "--dry-run"),
    ("erase", "notes", "--dry-run"),
    ("verify",),
    ("fingerprint",),
    ("backup", "copy.db"),
    ("repair", "dir:new"),
    ("optimize",),
    ("export", "--output", "out.jsonl"),
    ("import", "jsonl", "out.jsonl", "--dry-run"),
    ("completion", "fish"),
    ("skill",),
)


def help_of(verb: str) -> str:
    """What a command says of itself in 100 columns."""
    out = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": "100"}), contextlib.redirect_stdout(out):
        assert main([verb, "--help"]) == 0
    return out.getvalue()


def commands_text() -> str:
    """The table of commands."""
    rows = [
        f"| {title} | {', '.join(f'[`{verb}`](commands.md#holdfast-{verb})' for verb in verbs)} |"
        for title, verbs in GROUPS.items()
    ]
    return "\n".join(["| group | commands |", "|---|---|", *rows])


def shape(value: Any) -> str:
    """What a value is made of: names, not what they hold. Of a list, what its fullest item is made of."""
    if isinstance(value, dict):
        return f"{{{', '.join(_field(name, item) for name, item in value.items())}}}" if value else "{}"
    if isinstance(value, list):
        return f"[{max((shape(item) for item in value), key=len, default='')}]"
    return ""


_THEIRS = ("after", "arguments", "before", "metadata", "payload", "result", "state", "statuses")


def _field(name: str, item: Any) -> str:
    if name in _THEIRS:
        return name  # what users put in
    inside = shape(item)
    return f"{name}: {inside}" if inside not in ("", "[]", "{}") else name + inside


def written(words: tuple[str, ...], store: str) -> str:
    """The shape of what a command writes as JSON."""
    out = io.StringIO()
    has_store = words[0] not in ("completion", "skill")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as err:
        main([*words, *(("--store", store) if has_store else ()), "--json"])
    assert out.getvalue(), (words, err.getvalue())
    return f"{words[0]}:\n  {shape(json.loads(out.getvalue()))}\n"


def looking_shapes() -> str:
    with TemporaryDirectory() as folder:
        store = str(Path(folder) / "agent.db")
        with holdfast.open(store, durability="off") as hf:
            fill(hf)
            hf.schedule("nightly", "h", start={}, every=3600)
        return "".join(written(words, store) for words in LOOKING)


def steering_shapes() -> str:
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        path = list(sys.path)
        Path("steered.py").write_text("handlers = {'h': lambda run: [run.wait('?') for _ in run.steps()]}\n")
        store = Path(folder) / "agent.db"
        with holdfast.open(store, durability="off") as hf:
            for n in range(3):
                hf.thread("notes").save({"n": n})
            with hf.run("done", start={}) as run:
                run.finish(1)
        in_doubt(store)
        asking(store)
        found = "".join(written(words, str(store)) for words in STEERING)
        sys.path[:] = path
        sys.modules.pop("steered", None)
    return found


def parts() -> dict[str, str]:
    return {
        "commands": commands_text(),
        "shapes": f"```text\n{looking_shapes()}```",
        "more shapes": f"```text\n{steering_shapes()}```",
    }


@for_each("verb", VERBS)
def test_the_reference_has_the_help_of_every_command(verb: str) -> None:
    told = dict(_HELP.findall(REFERENCE.read_text("utf-8")))
    assert told.get(verb) == help_of(verb), "python -m tests.cli.test_docs writes it anew"


def test_the_reference_has_no_command_that_is_gone() -> None:
    assert [verb for verb, _ in _HELP.findall(REFERENCE.read_text("utf-8"))] == list(VERBS)


def test_the_page_lists_the_commands_and_the_shapes_of_json() -> None:
    assert dict(_PARTS.findall(PAGE.read_text("utf-8"))) == parts(), "python -m tests.cli.test_docs writes it anew"


def rewrite() -> None:
    found = parts()
    text = _PARTS.sub(lambda part: f"<!-- {part[1]} -->\n\n{found[part[1]]}\n\n<!-- end -->", PAGE.read_text("utf-8"))
    PAGE.write_text(text, "utf-8")
    head = REFERENCE.read_text("utf-8").partition("\n## ")[0].rstrip()
    helps = "".join(f"\n\n## holdfast {verb}\n\n```text\n{help_of(verb)}```" for verb in VERBS)
    REFERENCE.write_text(f"{head}{helps}\n", "utf-8")


if __name__ == "__main__":
    os.environ.pop("HOLDFAST_KEY", None)
    rewrite()
    sys.exit(0)
