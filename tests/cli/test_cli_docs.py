"""docs/cli.md says what `holdfast VERB --help` says, of every verb, and what each verb writes as JSON.

After a change of either, `python -m tests.cli.test_cli_docs` writes those parts of the page anew.
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
from holdfast.cli.main import main
from holdfast.cli.verbs import VERBS
from tests.cases import for_each
from tests.cli.looked import VERBS as LOOKING
from tests.cli.looked import fill

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "cli.md"
_HELP = re.compile(r"^## holdfast (\S+)\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHAPES = re.compile(r"^<!-- shapes -->\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EPILOG = "exit codes: "


def help_of(verb: str) -> str:
    """What a verb says of itself in 100 columns, without the exit codes, which are the same for all."""
    out = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": "100"}), contextlib.redirect_stdout(out):
        assert main([verb, "--help"]) == 0
    return out.getvalue().partition(f"\n{_EPILOG}")[0]


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


def shapes() -> dict[str, str]:
    """The shape of what each verb that looks writes as JSON."""
    found: dict[str, str] = {}
    with TemporaryDirectory() as folder:
        store = str(Path(folder) / "agent.db")
        with holdfast.open(store, durability="off") as hf:
            fill(hf)
        for words in LOOKING:
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                main([*words, "--store", store, "--json"])
            found[words[0]] = shape(json.loads(out.getvalue()))
    return found


def shapes_text() -> str:
    return "".join(f"{verb}:\n  {text}\n" for verb, text in shapes().items())


@for_each("verb", VERBS)
def test_the_page_has_the_help_of_every_verb(verb: str) -> None:
    told = dict(_HELP.findall(PAGE.read_text("utf-8")))
    assert told.get(verb) == help_of(verb), "python -m tests.cli.test_cli_docs writes it anew"


def test_the_page_has_no_verb_that_is_gone() -> None:
    assert {verb for verb, _ in _HELP.findall(PAGE.read_text("utf-8"))} == set(VERBS)


def test_the_page_tells_the_shapes_of_json() -> None:
    [told] = _SHAPES.findall(PAGE.read_text("utf-8"))
    assert told == shapes_text(), "python -m tests.cli.test_cli_docs writes it anew"


def rewrite() -> None:
    text = PAGE.read_text("utf-8")
    text = text[: text.index("## holdfast ")] if "## holdfast " in text else text
    text = _SHAPES.sub(lambda _: f"<!-- shapes -->\n\n```text\n{shapes_text()}```", text)
    for verb in VERBS:
        text += f"## holdfast {verb}\n\n```text\n{help_of(verb)}```\n\n"
    PAGE.write_text(text.rstrip("\n") + "\n", "utf-8")


if __name__ == "__main__":
    rewrite()
    sys.exit(0)
