"""Plain English in every text a user or a contributor reads: messages, docstrings, comments, pages, documents.

`RULES` lists the phrases that make readers stop, with what to write instead. It is a reminder, not a proof.

    python -m tests.test_language                      list every hit, with a summary per rule
    python -m tests.test_language src/holdfast/runs    list the hits in some files or folders
    python -m tests.test_language --summary            print only the summaries
    python -m tests.test_language --baseline           rewrite language_baseline.txt; refuses if the total has grown

`language_baseline.txt` holds the number of hits that each file still has. The numbers may only fall; a file without a
line has none. This module needs only the standard library, so it also runs outside an installation.
"""

from __future__ import annotations

import argparse
import ast
import bisect
import itertools
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
BASELINE = Path("tests/language_baseline.txt")

Kind = Literal["docstring", "text"]


@dataclass(frozen=True)
class Rule:
    """One phrase to avoid. Texts have single spaces, also at line ends; case is ignored outside `(?-i:…)`."""

    name: str
    pattern: str
    advice: str
    wrong: str  # an example that the rule finds
    right: str  # a similar example that it leaves alone
    only: Kind | None = None  # None: in every kind of text


def _not_after(*words: str) -> str:
    return "".join(rf"(?<!\b{word} )" for word in words)


RULES = (
    Rule(
        "whoever",
        r"\b(?:who|whom)(?:so)?ever\b",
        "name the actor: the caller, the worker, the process",
        "Whoever takes the run next sees it.",
        "The next worker sees it.",
    ),
    Rule(
        "somebody",
        r"\b(?:some|any|every|no)body(?:'s)?\b",
        "name the actor: another writer, no process, every reader",
        "somebody else holds the lease",
        "another process holds the lease",
    ),
    Rule(
        "who",
        r"(?:^|[.;:(] |\b(?:those|all|one|by|for|of|as|to|than|unlike|but) )who (?!may\b)(?![^.;]*\?)",
        "name the actor before 'who', or use it as the subject",
        "Safe to repeat. Who looks sees it.",
        "Who may connect? The users who have a token.",
    ),
    Rule(
        "what came of it",
        r"\bwhat (?:\w+ )?(?:came|comes?|coming|becomes?|became) of\b",
        "name the noun: the result, the outcome",
        "every call, and what became of it",
        "every call and its outcome",
    ),
    Rule(
        "what … of it",
        r"\bwhat (?:(?!of\b)\w+ ){1,3}(?:of|about) (?:it|them|this|that)\b",
        "name the noun: its metadata, the record, the rest",
        "a state and what is kept about it",
        "a state and its metadata",
    ),
    Rule(
        "told, said, heard",
        r"\b(?:told|said|heard|hears?|remarked)\b",
        "report, return, record, see, distinguish; name who does it",
        "The caller is told that the run ended.",
        "The call raises Ended.",
    ),
    Rule(
        "begin",
        r"\b(?-i:[Bb]egin|[Bb]egins|[Bb]eginning|[Bb]egan)\b|(?<!['\"])\b(?-i:[Bb]egun)\b(?!['\"])",
        "start, started",
        "a run that was begun and never ended",
        'BEGIN IMMEDIATE sets status "begun"',
    ),
    Rule(
        "go on",
        r"\b(?:go|goes|gone|going|went) on\b",
        "resume, continue",
        "The run goes on from checkpoint 3.",
        "The run resumes from checkpoint 3.",
    ),
    Rule(
        "give back",
        r"\b(?:give|gives|giving|gave|given)(?: \w+){0,3} back\b",
        "release, return",
        "A claim is given back at the end.",
        "A claim is released at the end.",
    ),
    Rule(
        "stands",
        r"\b(?:stand|stands|stood|standing)\b(?! for\b)",
        "is; or name the thing: the thread's position, its head, its status",
        "Where a thread stands after a group.",
        "The position of a thread. X stands for one.",
    ),
    Rule(
        "comes back",
        r"\b(?:come|comes|came|coming) back\b",
        "is returned, is restored, is loaded",
        "A state comes back equal.",
        "A state is loaded unchanged.",
    ),
    Rule(
        "brought",
        r"\b(?:brought|brings)\b",
        "add, write, import, cause",
        "values that a commit brought",
        "values that a commit added",
    ),
    Rule(
        "is none",
        _not_after("there") + r"\b(?:is|are|was|were|be) (?-i:none)\b|\b(?-i:[Nn]one) of ours\b",
        "say what it is, or: is not a valid X",
        "a stored time is none",
        "None if there is none",
    ),
    Rule(
        "is no X",
        _not_after("there")
        + r"\b(?:is|are|was|were|be) no (?!(?:longer|faster|slower|different|(?:more|less|later) than)\b)\w+",
        "is not a(n) X",
        "its metadata is no object",
        "there is no thread; it is no longer here",
    ),
    Rule(
        "any more",
        r"\b(?:any ?more|one no more|(?:is|are|was|were) no more)\b(?! than\b)",
        "no longer",
        "cells that nothing names any more",
        "cells that are no longer used",
    ),
    Rule(
        "beside",
        r"\bbeside\b",
        "next to, with, at the same time as, in addition to",
        "safe beside writers",
        "safe with concurrent writers; besides, it is fast",
    ),
    Rule(
        "behind",
        _not_after(
            "left", "leave", "leaves", "nothing", "anything", "it", "them", "falls", "fall", "lags", "lag", "far"
        )
        + r"\bbehind\b(?! (?:an?|the|your|another) (?:[\w-]+ ){0,2}(?:prox(?:y|ies)|load balancer|pooler|gateway)\b)",
        "after, under, below",
        "an entry behind the newest",
        "leave nothing behind; run it behind a reverse proxy",
    ),
    Rule(
        "text that is not empty",
        r"\b(?:text|texts|string|name)s? that (?:is|are) not empty\b",
        "a non-empty string",
        "a label must be a text that is not empty",
        "a label must be a non-empty string",
    ),
    Rule(
        "leave away",
        r"\b(?:leave|leaves|leaving|left) \S+ away\b",
        "omit",
        "leave version= away",
        "omit version=",
    ),
    Rule(
        "in clear",
        r"\bin (?:the )?clear\b",
        "in plain text, unencrypted",
        "labels are stored in clear",
        "labels are stored in plain text",
    ),
    Rule("deed", r"\bdeeds?\b", "effect", "deeds of a child", "indeed, an effect"),
    Rule("hurt", r"\bhurts?\b", "damaged; affects", "run a check to see what is hurt", "verify names damaged threads"),
    Rule(
        "docstring starts with a question word",
        r"^(?:(?:What|Who|Whose|Where|When|Which|Of|Why)\b|How\b(?! (?:many|much|long|often|far|large|old)\b))",
        "start with a verb or a noun: 'Return …', 'The position of …'",
        "What listings skip.",
        "Rows that listings skip.",
        only="docstring",
    ),
)

# Hits that are right: the file and the exact sentence, with the reason.
ALLOWED: dict[tuple[str, str], str] = {}

# -- reading the texts ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Passage:
    """A paragraph, message or comment. `pieces` are its parts with their lines, in order."""

    pieces: tuple[tuple[int, str], ...]
    kind: Kind = "text"

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces).rstrip()

    def line(self, offset: int) -> int:
        ends = list(itertools.accumulate(len(text) for _, text in self.pieces))
        return self.pieces[min(bisect.bisect_right(ends, offset), len(ends) - 1)][0]


_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)|(?<=\])\([^)\s]*\)|<https?://[^>]*>", re.DOTALL)


def _without_code(text: str) -> str:
    """Text whose code spans and addresses are replaced by as many X."""
    return _CODE.sub(lambda found: "X" * len(found[0]), text)


def _paragraphs(lines: Iterable[tuple[int, str]], kind: Kind = "text") -> Iterator[Passage]:
    """Passages of numbered lines: ended by an empty line, or by the start of a list item."""
    pieces: list[tuple[int, str]] = []
    for number, line in lines:
        bare = line.strip()
        if pieces and (not bare or re.match(r"[-*] |\d+\. ", bare)):
            yield Passage(tuple(pieces), kind)
            pieces = []
        if bare and not bare.startswith((">>>", "...")):
            pieces.append((number, " ".join(bare.split()) + " "))
    if pieces:
        yield Passage(tuple(pieces), kind)


_LITERAL = re.compile(
    r"(?P<prefix>[A-Za-z]{0,2})(?:(?P<long>\"\"\"|''')(?P<block>.*?)(?<!\\)(?P=long)"
    r"|(?P<short>[\"'])(?P<text>(?:\\.|(?!(?P=short)).)*)(?P=short))",
    re.DOTALL,
)
_REPLACED = re.compile(r"\{\{|\}\}|\{(?:[^{}]|\{[^{}]*\})*\}")
_SQL = re.compile(r"(?-i:SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|BEGIN|WITH|DROP|ALTER) ")


def python_passages(source: str) -> Iterator[Passage]:
    """Docstrings, other strings of more than one word, and comments."""
    tree = ast.parse(source)
    lines = source.splitlines()
    offsets = list(itertools.accumulate((len(line.encode()) + 1 for line in lines), initial=0))
    raw = "\n".join(lines).encode() + b"\n"
    documenting = {id(node) for node in _docstrings(tree)}
    spans: list[tuple[int, int]] = []
    for node, line in _strings(tree):
        if line is not None:  # inside an f-string: Python 3.11 does not know its place
            yield from _paragraphs([(line, str(node.value))] if isinstance(node, ast.Constant) else [])
            continue
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = offsets[node.lineno - 1] + node.col_offset
        end = offsets[node.end_lineno - 1] + node.end_col_offset
        spans.append((start, end))
        text = raw[start:end].decode()
        yield from _literals(text, node.lineno, "docstring" if id(node) in documenting else "text")
    spans.sort()
    yield from _comments(lines, offsets, spans)


def _docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str()) as first), *_]:
                    yield first
                case _:
                    pass


def _strings(tree: ast.Module) -> Iterator[tuple[ast.expr, int | None]]:
    """Every string of a module; for one inside an f-string, also the line of that."""
    nodes: list[tuple[ast.AST, int | None]] = [(tree, None)]
    while nodes:
        node, line = nodes.pop()
        match node:
            case ast.JoinedStr():
                if line is None:
                    yield node, None
                parts = [part for part in node.values if isinstance(part, ast.FormattedValue)]
                nodes += [(part.value, line or node.lineno) for part in parts]
            case ast.Constant(value=str()):
                yield node, line
            case ast.keyword(arg="class_"):  # names of CSS
                pass
            case _:
                nodes += [(child, line) for child in ast.iter_child_nodes(node)]


def _literals(source: str, line: int, kind: Kind) -> Iterator[Passage]:
    """Passages of one string expression: a literal, or several that Python joins."""
    joined: list[tuple[int, str]] = []
    for found in _LITERAL.finditer(source):
        number = line + source.count("\n", 0, found.start())
        text = found["block"] if found["long"] else found["text"]
        if "f" in found["prefix"].lower():
            text = _REPLACED.sub("X", text)
        if found["long"]:
            text = text.replace("\\\n", "\n")
            yield from _paragraphs(((number + n, part) for n, part in enumerate(text.split("\n"))), kind)
        else:
            text = re.sub(r"\\(.)", lambda escape: " " if escape[1] in "nrt" else escape[1], text)
            joined.append((number, re.sub(r"\s+", " ", text)))
    text = "".join(part for _, part in joined)
    if len(text.split()) > 1 and not _SQL.match(text):
        yield Passage(tuple(joined), kind)


def _comments(lines: list[str], offsets: list[int], spans: list[tuple[int, int]]) -> Iterator[Passage]:
    block: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        comment = None
        for found in re.finditer("#", line):
            at = offsets[number - 1] + len(line[: found.start()].encode())
            before = bisect.bisect_right(spans, (at, sys.maxsize)) - 1
            if before < 0 or spans[before][1] <= at:
                comment = found.start()
                break
        is_whole_line = comment is not None and not line[:comment].strip()
        if block and not is_whole_line:
            yield from _paragraphs(block)
            block = []
        if comment is not None:
            block.append((number, re.sub(r"^(?:noqa|type): \S+(?: - )?", "", line[comment:].lstrip("#:! "))))
            if not is_whole_line:
                yield from _paragraphs(block)
                block = []
    yield from _paragraphs(block)


def markdown_passages(source: str) -> Iterator[Passage]:
    """Paragraphs, headings, list items and cells of tables; not blocks of code."""
    source = re.sub(r"<!--.*?-->", lambda found: re.sub(r"[^\n]", " ", found[0]), source, flags=re.DOTALL)
    fence = ""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(source.splitlines(), 1):
        bare = line.strip()
        opening = re.match(r"`{3,}|~{3,}", bare)
        if fence:
            if bare.startswith(fence) and not bare.strip(fence[0]):
                fence = ""
            continue
        is_apart = bare.startswith(("|", "#")) or opening is not None
        if is_apart:
            yield from _paragraphs(block)
            block = []
        if opening is not None:
            fence = opening[0]
        elif bare.startswith("|"):
            bars = [bar.start() for bar in re.finditer(r"\|", _without_code(bare))]
            for start, end in itertools.pairwise([*bars, len(bare)]):
                yield from _paragraphs([(number, bare[start + 1 : end])])
        elif is_apart:
            yield from _paragraphs([(number, bare.lstrip("# "))])
        else:
            block.append((number, re.sub(r"</?\w[^>]*>", "", line).lstrip("> ")))
    yield from _paragraphs(block)


_SCRIPT = re.compile(
    r"(?P<comments>(?:(?<![^\n])[ \t]*//[^\n]*\n)+)|//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/"
    r"|(?P<quote>[\"'`])(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)",
    re.DOTALL,
)


def script_passages(source: str) -> Iterator[Passage]:
    """Comments and strings of JavaScript and CSS."""
    for found in _SCRIPT.finditer(source):
        number = source.count("\n", 0, found.start()) + 1
        text = found["comments"] or found["line"] or found["block"] or found["text"] or ""
        if found["text"] is not None:
            text = re.sub(r"\$\{[^{}]*\}", "X", text)
            if len(text.split()) < 2:
                continue
        yield from _paragraphs((number + n, part.strip().lstrip("/* ")) for n, part in enumerate(text.split("\n")))


def html_passages(source: str) -> Iterator[Passage]:
    """The text between the tags of a page or a template."""
    hidden = r"<(script|style|code|pre)\b.*?</\1>|<!--.*?-->|\{[#%].*?[#%]\}|<[^>]*>"
    blank = re.sub(hidden, lambda found: "\n" * found[0].count("\n") + "\x00", source, flags=re.DOTALL)
    blank = re.sub(r"\{\{.*?\}\}", "X", blank)
    number = 1
    for text in blank.split("\x00"):
        yield from _paragraphs((number + n, part) for n, part in enumerate(text.split("\n")))
        number += text.count("\n")


def sql_passages(source: str) -> Iterator[Passage]:
    """Comments of a file of statements."""
    for is_comment, lines in itertools.groupby(
        enumerate(source.splitlines(), 1), key=lambda line: line[1].lstrip().startswith("--")
    ):
        if is_comment:
            yield from _paragraphs((number, line.strip().lstrip("- ")) for number, line in lines)


def make_passages(source: str) -> Iterator[Passage]:
    """Comments of a Makefile, and what its commands print."""
    numbered = list(enumerate(source.splitlines(), 1))
    for is_comment, lines in itertools.groupby(numbered, key=lambda line: line[1].startswith("#")):
        if is_comment:
            yield from _paragraphs((number, line.lstrip("# ")) for number, line in lines)
            continue
        for number, line in lines:
            for found in re.finditer(r"(['\"])(.*?)\1", line) if "echo" in line else ():
                yield from _paragraphs([(number, found[2])])


READERS = {
    ".py": python_passages,
    ".md": markdown_passages,
    ".js": script_passages,
    ".css": script_passages,
    ".html": html_passages,
    ".jinja": html_passages,
    ".sql": sql_passages,
    "": make_passages,
}


def files(root: Path) -> list[Path]:
    """Every file with text for people, relative to the root."""
    documents = [root / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile")]
    sources = [path for path in (root / "src").rglob("*") if path.suffix in READERS and path.is_file()]
    pages = (root / "docs").rglob("*.md")
    found = {path.relative_to(root) for path in (*documents, *sources, *pages) if path.is_file()}
    return sorted(path for path in found if path.suffix or path.name == "Makefile")


# -- finding hits -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hit:
    path: str
    line: int
    rule: Rule
    found: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: “{self.found}” → {self.rule.advice}\n    {self.sentence}"


_PATTERNS = [(rule, re.compile(rule.pattern, re.IGNORECASE)) for rule in RULES]
_SENTENCE_END = re.compile(r"[.?!;]\)?\s")


def hits_in(path: str, passages: Iterable[Passage]) -> Iterator[Hit]:
    """Every hit in the passages of one file, but for those that are allowed."""
    for passage in passages:
        text = passage.text
        prose = _without_code(text)
        for rule, pattern in _PATTERNS:
            if rule.only is not None and rule.only != passage.kind:
                continue
            for found in pattern.finditer(prose):
                sentence = _sentence(text, found.start(), found.end())
                if (path, sentence) not in ALLOWED:
                    yield Hit(path, passage.line(found.end() - 1), rule, found[0].strip(" .;:("), sentence)


def _sentence(text: str, start: int, end: int) -> str:
    """The sentence around a hit, with single spaces."""
    first = max((each.end() for each in _SENTENCE_END.finditer(text) if each.end() <= start + 2), default=0)
    last = next((each.start() + 1 for each in _SENTENCE_END.finditer(text, max(end - 1, first))), len(text))
    return " ".join(text[first:last].split())


def all_hits(root: Path, only: Iterable[Path] = ()) -> list[Hit]:
    """Every hit under the root, or in the files and folders named, by file and line."""
    chosen = [path.as_posix() for path in only]
    found: list[Hit] = []
    for path in files(root):
        name = path.as_posix()
        if not chosen or any(name == each or name.startswith(each + "/") for each in chosen):
            passages = READERS[path.suffix]((root / path).read_text("utf-8"))
            found += sorted(hits_in(name, passages), key=lambda hit: hit.line)
    return found


def read_baseline(root: Path) -> dict[str, int]:
    pairs = (line.split(maxsplit=1) for line in (root / BASELINE).read_text("utf-8").splitlines() if line[:1] != "#")
    return {path: int(count) for count, path in pairs}


def write_baseline(root: Path, counts: Counter[str]) -> None:
    head = "# Hits that each file still has; written by: python -m tests.test_language --baseline\n"
    lines = [f"{counts[path]:4} {path}\n" for path in sorted(counts)]
    (root / BASELINE).write_text(head + "".join(lines), "utf-8")


# -- the tests --------------------------------------------------------------------------------------------------------


def test_each_rule_finds_its_example() -> None:
    for rule, pattern in _PATTERNS:
        assert pattern.search(rule.wrong), rule.name
        assert not pattern.search(rule.right), rule.name


def test_where_texts_are_found() -> None:
    source = (
        '"""A module\nwith begun work."""\n'
        "x = 1  # begun here\n"
        'raise E(f"begun {begun!r} "\n        "is what " "was begun")\n'
        '# a block begun\n# in two lines: "begun"\n'
        "y = 'begun'  # `begun`\n"
        "tag(class_='panel begun')\n"
        "z = f\"{'begun it' if x else 1}\"\n"
    )
    found = hits_in("a.py", python_passages(source))
    assert [hit.line for hit in sorted(found, key=lambda hit: hit.line)] == [2, 3, 4, 5, 6, 10]
    page = "# Begun\n\nIt was `begun`\nand begun.\n\n```\nbegun\n```\n\n| begun | [begin](begin) |\n<!-- begun -->\n"
    assert [hit.line for hit in hits_in("a.md", markdown_passages(page))] == [1, 4, 10, 10]
    script = "// begun\n// again\nconst begun = `begun ${begun}`; /* begun */ call('begun');\n"
    assert [hit.line for hit in hits_in("a.js", script_passages(script))] == [1, 3, 3]
    assert [hit.line for hit in hits_in("a.html", html_passages("<p class='begun'>\nbegun\n{{ begun }}</p>"))] == [2]
    assert [hit.line for hit in hits_in("a.sql", sql_passages("-- begun\nSELECT begun;"))] == [1]
    make = "# begun\nbegun: x\n\t@echo 'make x  begun'\n"
    assert [hit.line for hit in hits_in("Makefile", make_passages(make))] == [1, 3]


def test_texts_are_plain_english() -> None:
    found = all_hits(ROOT)
    counts = Counter(hit.path for hit in found)
    baseline = read_baseline(ROOT)
    more = [hit for hit in found if counts[hit.path] > baseline.get(hit.path, 0)]
    assert not more, (
        "more hits than tests/language_baseline.txt has (number allowed, then all hits of the file):\n"
        + "\n".join(
            f"{path}: {counts[path]}, allowed {baseline.get(path, 0)}\n" + "\n".join(str(hit) for hit in hits)
            for path, hits in itertools.groupby(more, key=lambda hit: hit.path)
        )
    )
    fewer = [f"{path}: {counts[path]}, not {count}" for path, count in baseline.items() if counts[path] < count]
    assert not fewer, "fewer hits: run python -m tests.test_language --baseline\n" + "\n".join(fewer)


def test_every_allowed_sentence_is_there() -> None:
    texts: dict[str, str] = {}
    for path, sentence in ALLOWED:
        if path not in texts:
            passages = READERS[Path(path).suffix]((ROOT / path).read_text("utf-8"))
            texts[path] = "\n".join(" ".join(passage.text.split()) for passage in passages)
        assert sentence in texts[path], (path, sentence)


# -- the command ------------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    parser.add_argument("--baseline", action="store_true", help="rewrite the baseline")
    parser.add_argument("--summary", action="store_true", help="print only the summaries")
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders, relative to the root; default: all")
    chosen = parser.parse_args(arguments)
    root: Path = chosen.root.resolve()
    found = all_hits(root, chosen.paths)
    counts = Counter(hit.path for hit in found)
    if chosen.baseline:
        before = sum(read_baseline(root).values()) if (root / BASELINE).exists() else len(found)
        if len(found) > before:
            print(f"{len(found)} hits, and the baseline has {before}: not written", file=sys.stderr)  # noqa: T201
            return 1
        write_baseline(root, counts)
        print(f"{len(found)} hits in {len(counts)} files; before: {before}")  # noqa: T201
        return 0
    lines = [] if chosen.summary else [str(hit) for hit in found]
    packages = Counter("/".join(Path(path).parts[:3]) for path in counts.elements())
    rules = Counter(hit.rule.name for hit in found)
    for title, table in (("per package", packages), ("per rule", rules)):
        lines += ["", f"{title}:", *(f"{count:6}  {name}" for name, count in table.most_common())]
    print("\n".join([*lines, "", f"{len(found)} hits in {len(counts)} files"]))  # noqa: T201
    return 1 if found else 0


# -- full stops of error messages -------------------------------------------------------------------------------------

_NEXT_SENTENCE = re.compile(r"\. (?:[A-Z`]|hf\.|docs/)")


def wrong_stops(source: str, errors: Collection[str]) -> Iterator[tuple[int, str]]:
    """Messages that break the rule: no full stop after a single sentence, one after each of several sentences."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in errors:
                for argument in node.args:
                    text = _message(argument)
                    if text.endswith(".") != (_NEXT_SENTENCE.search(text) is not None) and not text.endswith("?"):
                        yield argument.lineno, text
            case _:
                pass


def _message(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr():
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        case _:
            return ""


def test_full_stops_of_error_messages() -> None:
    package = ROOT / "src" / "holdfast"
    tree = ast.parse((package / "errors.py").read_text("utf-8"))
    errors = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert list(wrong_stops("raise Busy('it is. Try again')", errors))
    assert list(wrong_stops("raise Busy(f'{path} is busy.')", errors))
    assert not list(wrong_stops("raise Busy('it is busy'); raise Busy(f'{path} is busy. Try again.')", errors))
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted(package.rglob("*.py"))
        for line, text in wrong_stops(path.read_text("utf-8"), errors)
    ]
    assert not found, "\n".join(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
