"""Every Python block of the documents runs, and gives what it says.

Blocks of a file share one namespace, in order, in a folder of their own and a process of their own. At the end of an
expression, `# -> x` says that its repr is x (or, for a print, what it prints), and `# raises X: text` that it raises X
with a message that begins so. A block that cannot run says why in its first line: `# not run: reason`.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast
from tests import small
from tests.cases import for_each
from tests.covers import covers
from tests.drill.short import few_further

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Pages of frameworks with environments of their own: executed where the framework is installed, by tests/adapters.
ELSEWHERE = {"agent_framework.md", "google_adk.md", "langchain.md", "strands.md"}
GUIDES = [ROOT / "docs" / "guide.md", ROOT / "docs" / "runs.md"]

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CLAIM = re.compile(r"  # (->|raises) (.+)$")
_LINK = re.compile(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)")


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """The Python blocks of a document, each with the number of its first line."""
    for found in _BLOCK.finditer(text):
        yield text.count("\n", 0, found.start(1)) + 1, found[1]


def run_document(path: Path) -> int:
    """Run the blocks of a document; how many claims were checked. AssertionError for one that does not hold."""
    # A module that can be found by its name: dataclasses look there for what their annotations mean.
    module = sys.modules["document"] = ModuleType("document")
    namespace = vars(module)
    checked = 0
    for line, source in blocks(path.read_text("utf-8")):
        if source.startswith("# not run"):
            assert re.match(r"# not run: \S", source), f"{path.name}:{line}: say why it is not run"
            continue
        checked += run_block(source, namespace, f"{path.name}:{line}")
    return checked


def run_block(source: str, namespace: dict[str, Any], where: str) -> int:
    lines = source.splitlines()
    claims = {number: found for number, text in enumerate(lines, 1) if (found := _CLAIM.search(text))}
    for statement in ast.parse(source).body:
        claim = claims.pop(statement.end_lineno or 0, None)
        if claim is None:
            # Line by line, so that an error shows where it came from.
            execute(compile(ast.Module([statement], []), where, "exec", dont_inherit=True), namespace)
        else:
            assert isinstance(statement, ast.Expr), f"{where}: only an expression can be followed by a claim"
            check_claim(statement, claim, namespace, f"{where}+{statement.lineno - 1}")
    assert not claims, f"{where}: a claim in line {min(claims)} of the block is not at the end of a whole expression"
    return len([text for text in lines if _CLAIM.search(text)])


def check_claim(statement: ast.Expr, claim: re.Match[str], namespace: dict[str, Any], where: str) -> None:
    code = compile(ast.Expression(statement.value), where, "eval", dont_inherit=True)
    printed = io.StringIO()
    error: Exception | None = None
    value: Any = None
    try:
        with contextlib.redirect_stdout(printed):
            value = evaluate(code, namespace)
    except Exception as raised:  # noqa: BLE001 - which one is what the claim is about
        error = raised
    if claim[1] == "raises":
        name, _, text = claim[2].partition(": ")
        assert type(error).__name__ == name, f"{where}: raised {error!r}"
        assert str(error).startswith(text), f"{where}: says {error}"
    elif error is not None:
        raise error
    else:
        is_print = isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func) == "print"
        shown = printed.getvalue().rstrip("\n") if is_print else repr(value)
        assert shown == claim[2], f"{where}: gives {shown}"


# The documents are ours, and running them is the point.
execute = exec
evaluate = eval


def headings(text: str) -> set[str]:
    """The anchors of a document, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _name(path: Path) -> str:
    return path.name


@covers("E14")
@pytest.mark.parametrize(
    "path",
    [path for path in DOCUMENTS if path.name not in ELSEWHERE and "```python" in path.read_text("utf-8")],
    ids=_name,
)
def test_every_block_runs(path: Path, tmp_path: Path) -> None:
    # A process of its own: a document forks, and the one that runs the tests has threads.
    small.call(run_in, folder=tmp_path, path=path)


def run_in(folder: Path, path: Path) -> None:
    os.chdir(folder)
    with few_further(1):  # the claims are about the first kills
        run_document(path)


@for_each("path", DOCUMENTS)
def test_every_link_leads_somewhere(path: Path) -> None:
    for target, anchor in _LINK.findall(path.read_text("utf-8")):
        file = (path.parent / target) if target else path
        assert file.exists(), f"{path.name} links to {target}"
        assert not anchor or anchor in headings(file.read_text("utf-8")), f"{path.name} links to #{anchor}"


def guides() -> str:
    return "\n".join(guide.read_text("utf-8") for guide in GUIDES)


@for_each("name", holdfast.__all__)
def test_the_guides_mention_every_public_name(name: str) -> None:
    assert re.search(rf"(?<!\w){name}(?!\w)", guides()), f"docs/guide.md and docs/runs.md say nothing of {name}"


@pytest.mark.parametrize("kind", [holdfast.Holdfast, holdfast.Thread, holdfast.Retention, holdfast.Run])
def test_the_guides_show_every_verb(kind: type) -> None:
    text = guides()
    verbs = [name for name in vars(kind) if not name.startswith("_")]
    assert verbs
    assert [verb for verb in verbs if not re.search(rf"\b{verb}\b", text)] == []


def test_the_readme_shows_the_quickstart() -> None:
    code = (ROOT / "examples" / "quickstart.py").read_text("utf-8")
    assert code in [source for _, source in blocks((ROOT / "README.md").read_text("utf-8"))]


@for_each(
    "source",
    [
        "1 + 1  # -> 3",
        "print('a')  # -> b",
        "1 + 1  # raises ValueError",
        "int('x')  # raises TypeError",
        "int('x')  # raises ValueError: something else",
        "x = 1  # -> 1",
        "if True:\n    1  # -> 1\n",
        "assert 1 == 2",
    ],
)
def test_a_claim_that_does_not_hold_is_found(source: str) -> None:
    with pytest.raises(AssertionError):
        run_block(source, {}, "here")


def test_claims_that_hold() -> None:
    source = "x = 1\nx + 1  # -> 2\nprint('a')  # -> a\nint('y')  # raises ValueError: invalid literal\n"
    assert run_block(source, {}, "here") == 3
