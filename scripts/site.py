"""Hooks of mkdocs for `make docs`: files from outside docs/, drawings in the page, Markdown copies and llms.txt."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# Files outside of docs/ that are pages of the site.
PAGES = {
    "SECURITY.md": "trust/security.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "CHANGELOG.md": "internals/changelog.md",
    "examples/systemd/README.md": "examples/systemd/index.md",
    "examples/kubernetes/README.md": "examples/kubernetes/index.md",
}
ABOUT = "Crash-safe state and tools that act once, for LLM agents. A Python library: one SQLite file, no server."

# What the theme loads for a search without a server. docs/offline.js takes its place.
_WORKER = "https://unpkg.com/iframe-worker/shim"
_LINK = re.compile(r"(\[[^\]\[]*\])\((?!https?://|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")
_IMAGE = re.compile(r'<img alt="[^"]*" src="([^"]+\.svg)" ?/?>')
_DIRECTIVE = re.compile(r"^::: holdfast\.(\S+)(?:\n    .*)*$", re.MULTILINE)
_written: dict[str, tuple[str, str]] = {}  # of each page: its title and its Markdown


def on_files(files: Any, config: Any) -> Any:
    """Add pages and examples from outside of docs/."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - only the environment of the site has it

    for source, target in PAGES.items():
        files.append(
            File.generated(config, target, content=relinked((ROOT / source).read_text("utf-8"), source, target))
        )
    for path in sorted((ROOT / "examples").rglob("*")):
        if path.suffix in (".py", ".yaml", ".service"):
            # As text, so that a browser shows it.
            name = f"{path.relative_to(ROOT).as_posix()}.txt"
            files.append(File.generated(config, name, content=path.read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to files outside of docs/ to their copies."""
    source = page.file.src_uri
    if source not in PAGES.values():
        markdown = relinked(markdown, f"docs/{source}", source)
    found = re.search(r"^# (.+)$", markdown, re.MULTILINE)
    _written[source] = (found[1] if found else page.title or source, markdown)
    return markdown


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Put drawings and plots into the page, so that they have the colours of its theme."""
    folder = (DOCS / page.file.src_uri).parent

    def put(found: re.Match[str]) -> str:
        path = Path(os.path.normpath(folder / found[1]))
        return f'<div class="drawing-frame">{path.read_text("utf-8")}</div>' if path.is_file() else found[0]

    return _IMAGE.sub(put, html)


def on_post_build(config: Any) -> None:
    """Write each page as Markdown, and llms.txt, which lists them."""
    site = Path(config["site_dir"])
    lines = ["# Holdfast", "", f"> {ABOUT}", ""]
    for section, pages in sections(config["nav"]):
        lines += [f"## {section}", ""]
        for source in pages:
            title, markdown = _written[source]
            target = site / source
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(with_docstrings(markdown), "utf-8")
            lines.append(f"- [{title}]({source}): {first_sentence(markdown)}")
        lines.append("")
    (site / "llms.txt").write_text("\n".join(lines), "utf-8")
    for page in site.rglob("*.html"):
        html = page.read_text("utf-8")
        own = os.path.relpath(site / "offline.js", page.parent)
        page.write_text(html.replace(_WORKER, own), "utf-8")


def with_docstrings(markdown: str) -> str:
    """Markdown in which signatures and docstrings take the place of the directives of mkdocstrings."""
    if "\n::: " not in markdown:
        return markdown
    import griffe  # noqa: PLC0415 - only the environment of the site has it

    package = griffe.load("holdfast", search_paths=[ROOT / "src"], resolve_aliases=True)
    return _DIRECTIVE.sub(lambda found: "\n".join(_described(package[found[1]], found[1])), markdown)


def _described(named: Any, name: str) -> list[str]:
    found = named.final_target if named.is_alias else named
    lines = [f"### {name}", ""]
    if found.is_function:
        lines += ["```python", found.signature(), "```", ""]
    lines += [found.docstring.value, ""] if found.docstring else []
    for member in found.all_members.values() if found.is_class or found.is_module else ():
        if member.name.startswith("_") or (found.is_module and member.is_alias):  # of a module: what it imports
            continue
        inner = member.final_target if member.is_alias else member
        if not inner.docstring:
            continue
        text = inner.signature() if inner.is_function else member.name
        lines.append(f"- `{text}`: {' '.join(inner.docstring.value.partition(chr(10) * 2)[0].split())}")
    return lines


def sections(nav: list[Any]) -> list[tuple[str, list[str]]]:
    return [(title, _pages(below)) for entry in nav for title, below in entry.items()]


def _pages(below: Any) -> list[str]:
    if isinstance(below, str):
        return [below]
    return [page for entry in below for each in entry.values() for page in _pages(each)]


def first_sentence(markdown: str) -> str:
    for paragraph in markdown.split("\n\n"):
        text = " ".join(paragraph.split())
        if text and text[0] not in "#`|-[!:<>{":
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
            return re.split(r"(?<=[.:]) ", plain)[0].rstrip(":")
    return ""


def relinked(markdown: str, source: str, target: str) -> str:
    """A page that moves from `source`, a path in the repository, to `target`, a path in the site."""
    here = (ROOT / source).parent
    there = Path(target).parent

    def put(found: re.Match[str]) -> str:
        path = Path(os.path.normpath(here / found[2]))
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
        if name in PAGES:
            to = PAGES[name]
        elif f"{name}/README.md" in PAGES:
            to = PAGES[f"{name}/README.md"]
        elif name.startswith("examples/") and path.suffix in (".py", ".yaml", ".service"):
            to = f"{name}.txt"
        elif name.startswith("docs/"):
            to = name.removeprefix("docs/")
        else:
            return found[1][1:-1]  # not in the site: the text without a link
        return f"{found[1]}({os.path.relpath(to, there)}{found[3] or ''})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(put, part) for part in parts)
