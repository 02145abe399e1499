"""Every Python block of the documents runs, and gives what it says.

Blocks of a file share one namespace, in order, in a folder of their own and a process of their own. At the end of an
expression, `# -> x` says that its repr is x (or, for a print, what it prints), and `# raises X: text` that it raises X
with a message that begins so. A block that cannot run says why in its first line: `# not run: reason`.

A block with a title (```python title="agent.py") is a file that the reader saves. In the pages that have such files,
the console blocks run too: the output must have the lines of the page, where … is any text.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast
from holdfast.cli.main import main
from tests import small
from tests.cases import for_each
from tests.covers import covers
from tests.drill.short import few_further

ROOT = Path(__file__).resolve().parent.parent
SKILL = ROOT / "src" / "holdfast" / "cli" / "skill.md"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), SKILL]
LINKING = [*DOCUMENTS, *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))]
# Pages of frameworks with environments of their own: executed where the framework is installed, by tests/adapters.
ELSEWHERE = {"agent_framework.md", "google_adk.md", "langchain.md", "strands.md"}
# The shell sessions of a page run in the folder that the page before it left.
WALKS = [
    ["start/five-minutes.md"],
    ["tutorials/loop.md", "tutorials/fleet.md"],
    ["how-to/deploy.md"],
    ["how-to/drill.md"],
]
# Pages that `make docs` makes from files outside of docs/.
MADE = {"trust/security.md", "internals/contributing.md", "internals/changelog.md"}

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r'^```python title="([\w.]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_SESSION = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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
    return path.relative_to(ROOT).as_posix()


@covers("E14")
@pytest.mark.parametrize(
    "path",
    [path for path in DOCUMENTS if path.name not in ELSEWHERE and "```python\n" in path.read_text("utf-8")],
    ids=_name,
)
def test_every_block_runs(path: Path, tmp_path: Path) -> None:
    # A process of its own: a document forks, and the one that runs the tests has threads.
    small.call(run_in, folder=tmp_path, path=path)


def run_in(folder: Path, path: Path) -> None:
    os.chdir(folder)
    with few_further(1):  # the claims are about the first kills
        run_document(path)


@pytest.mark.parametrize("pages", WALKS, ids=lambda pages: pages[-1])
def test_a_reader_who_types_the_commands_sees_what_the_page_shows(pages: list[str], tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    environment.pop("HOLDFAST_STORE", None)
    for page in pages:
        text = (ROOT / "docs" / page).read_text("utf-8")
        for name, source in _FILE.findall(text):
            (tmp_path / name).write_text(source, "utf-8")
        for command, shown in commands_of(text):
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                environment[name] = value
                continue
            done = subprocess.run(
                ["/bin/bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            # An interactive shell reports a killed program.
            lines = [*(done.stdout + done.stderr).splitlines(), *(["Killed"] if done.returncode in (137, -9) else [])]
            for line in shown:
                # The widths of columns depend on what was measured.
                pattern = ".*".join(map(re.escape, " ".join(line.split()).split("…")))
                assert any(re.fullmatch(pattern, " ".join(each.split())) for each in lines), (
                    f"{page}: $ {command}\n{line}\n{lines}"
                )


def commands_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of the console blocks, each with the lines that it prints."""
    for session in _SESSION.findall(text):
        for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, [line for line in shown.splitlines() if line.strip()]


@for_each("path", LINKING)
def test_every_link_leads_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target, anchor in _LINK.findall(text):
        file = (path.parent / target) if target else path
        assert file.exists(), f"{path.name} links to {target}"
        assert not anchor or anchor in headings(file.read_text("utf-8")), f"{path.name} links to {target}#{anchor}"


def test_every_page_is_in_the_menu_of_the_site() -> None:
    menu = re.findall(r": ([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(menu) == sorted(pages | MADE)


def used_names() -> tuple[set[str], set[str]]:
    """The names of `holdfast` that executed blocks use, and all attributes that they use."""
    names: set[str] = set()
    attributes: set[str] = set()
    for path in DOCUMENTS:
        for _, source in blocks(path.read_text("utf-8")):
            if source.startswith("# not run"):
                continue
            for node in ast.walk(ast.parse(source)):
                match node:
                    case ast.Attribute(value=ast.Name(id="holdfast"), attr=name):
                        names.add(name)
                        attributes.add(name)
                    case ast.Attribute(attr=name):
                        attributes.add(name)
                    case ast.ImportFrom(module=str() as module, names=imported) if module.startswith("holdfast"):
                        names.update(each.name for each in imported)
                    case _:
                        pass
    return names, attributes


def test_every_public_name_has_an_example() -> None:
    names, attributes = used_names()
    assert [name for name in holdfast.__all__ if name not in names] == []
    verbs = [
        f"{kind.__name__}.{name}"
        for kind in (holdfast.Holdfast, holdfast.Thread, holdfast.Run)
        for name in vars(kind)
        if not name.startswith("_") and name not in attributes
    ]
    assert verbs == []


def test_the_reference_has_every_public_name() -> None:
    reference = "\n".join(path.read_text("utf-8") for path in (ROOT / "docs" / "reference" / "python").glob("*.md"))
    shown = set(re.findall(r"^::: holdfast\.(\w+)$", reference, re.MULTILINE))
    in_modules = {name for module in (holdfast.errors, holdfast.types) for name in vars(module)}
    assert [name for name in holdfast.__all__ if name not in shown | in_modules] == []


def test_the_skill_is_what_the_command_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill"]) == 0
    text = capsys.readouterr().out
    assert text == SKILL.read_text("utf-8")
    assert re.match(r"---\nname: holdfast\ndescription: .{40,1024}\n---\n", text), "the head that agents read"


def test_every_example_is_short() -> None:
    lengths = {path.name: len(path.read_text("utf-8").splitlines()) for path in (ROOT / "examples").glob("*.py")}
    assert {name: length for name, length in lengths.items() if length >= 80} == {}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


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
