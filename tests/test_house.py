"""Names and sizes of modules: a reader must find the place of a thing by the name of its file.

And the doubles of stores in tests: they have the verbs of a store and no others.

python -m tests.test_house    list the problems
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from holdfast.stores.abilities import Announcing, BackingUp, Mending, Rewrapping, Scanning, Totalling
from holdfast.stores.contract import Store
from tests.source import SOURCE, modules, tree_of

# File names that several packages may use, because the files play the same part in them.
SAME_PART = {
    "context": {"runs", "threads"},
    "contract": {"stores", "testing"},
    "handle": {"", "aio"},
    "jsonl": {"exporters", "formats", "importers"},
    "langgraph": {"adapters", "importers"},
    "openai_agents": {"adapters", "importers"},
    "run": {"aio", "runs"},
    "worker": {"aio", "runs"},
    "connection": {"stores.postgres", "stores.sqlite"},
    "backup": {"stores.log", "stores.sqlite"},
    "failures": {"stores.postgres", "stores.sqlite"},
    "schema": {"stores.sqlite", "stores.postgres"},
    "store": {"stores.log", "stores.postgres", "stores.sql", "stores.sqlite"},
    "transaction": {"stores.postgres", "stores.sql", "stores.sqlite"},
    "writer": {"stores.sqlite", "stores.postgres"},
}

# Class names that several modules may use, because the classes mean the same.
SAME_CLASS = {
    "HoldfastPlugin": {"adapters.google_adk", "adapters.strands"},  # plugins of frameworks, imported by their modules
    "Journal": {"adapters.claude_journal", "runs.journal"},
    "ToolCall": {"inspect.chat", "runs.tool_calls", "states"},
    "Progress": {"stores.contract_runs", "types"},
    "Writer": {"stores.sqlite.writer", "stores.postgres.writer"},
}

# Words in -ing that name a thing, not an activity.
NOUNS = {"keyring", "ring", "string", "testing"}

LINES_MAX = 600
VERBS = 32  # of the store contract


# -- the rules: each yields its problems ------------------------------------------------------------------------------


def problems(chosen: Collection[str]) -> Iterator[str]:
    yield from repeated_names(chosen, SAME_PART)
    yield from gerunds(chosen)
    yield from repeated_classes(classes_of(chosen), SAME_CLASS)
    yield from long_modules(lines_of(chosen))


def repeated_names(chosen: Collection[str], same_part: Mapping[str, set[str]]) -> Iterator[str]:
    homes: dict[str, set[str]] = defaultdict(set)
    for module in chosen:
        package, _, name = module.rpartition(".")
        homes[name].add(package)
    for name, packages in homes.items():
        if len(packages) > 1 and not packages <= same_part.get(name, set()):
            places = ", ".join(sorted(f"{package or '.'}" for package in packages))
            yield f"{name}: in {places}. Name each for what is in it"


def gerunds(chosen: Collection[str]) -> Iterator[str]:
    for module in chosen:
        words = module.rpartition(".")[2].split("_")
        if any(word.endswith("ing") and word not in NOUNS for word in words):
            yield f"{module}: named for an activity. Name it for the thing that is in it"


def repeated_classes(classes: Mapping[str, set[str]], same_class: Mapping[str, set[str]]) -> Iterator[str]:
    for name, places in classes.items():
        if len(places) > 1 and not places <= same_class.get(name, set()):
            yield f"{name}: a class in {', '.join(sorted(places))}. One name, one meaning"


def long_modules(lines: Mapping[str, int]) -> Iterator[str]:
    for module, count in lines.items():
        if count > LINES_MAX:
            yield f"{module}: {count} lines, more than {LINES_MAX}"


def classes_of(chosen: Collection[str]) -> dict[str, set[str]]:
    """The modules that define each class at their top level."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in chosen:
        for node in tree_of(module).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].add(module)
    return found


def lines_of(chosen: Collection[str]) -> dict[str, int]:
    return {module: modules()[module].read_text("utf-8").count("\n") for module in chosen}


# -- doubles of stores: a verb that a store no longer has would never be called, and its test would test nothing ------


def verbs_of_stores() -> set[str]:
    """The public names of the contract and of the optional abilities."""
    kinds = (Store, Announcing, Rewrapping, Mending, BackingUp, Scanning, Totalling)
    names = {name for kind in kinds for name in (*vars(kind), *vars(kind).get("__annotations__", {}))}
    return {name for name in names if not name.startswith("_")}


def doubles_of(classes: Collection[ast.ClassDef]) -> list[ast.ClassDef]:
    """The classes that derive from a store or from a double, or pass on to `self._store` what they do not define."""
    found = [each for each in classes if _passes_on(each) or any(name.endswith("Store") for name in _bases(each))]
    while True:
        names = {each.name for each in found}
        more = [each for each in classes if each not in found and names.intersection(_bases(each))]
        if not more:
            return found
        found += more


def _bases(double: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).rpartition(".")[2] for base in double.bases}


def _passes_on(double: ast.ClassDef) -> bool:
    names = {each.name for each in double.body if isinstance(each, ast.FunctionDef)}
    return "__getattr__" in names and any(_is_own_store(node) for node in ast.walk(double))


def _is_own_store(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr="_store"):
            return True
        case _:
            return False


def unknown_verbs(double: ast.ClassDef, verbs: Collection[str]) -> Iterator[str]:
    """The verbs that a double defines, calls or compares names with in its `__getattr__`, and that no store has."""
    for each in double.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith("_"):
            yield from {each.name}.difference(verbs)
        if isinstance(each, ast.FunctionDef) and each.name == "__getattr__":
            compared = [part for node in ast.walk(each) if isinstance(node, ast.Compare) for part in ast.walk(node)]
            texts = {part.value for part in compared if isinstance(part, ast.Constant) and isinstance(part.value, str)}
            yield from sorted(texts.difference(verbs))
    for node in ast.walk(double):
        if isinstance(node, ast.Attribute) and _is_own_store(node.value):
            yield from {node.attr}.difference(verbs)


def classes_in_tests() -> dict[ast.ClassDef, Path]:
    """Every class that may be a double, of the tests and of `holdfast.testing`, and its file."""
    files = [*Path(__file__).parent.rglob("*.py"), *(SOURCE / "testing").rglob("*.py")]
    texts = {file: file.read_text("utf-8") for file in files}
    derives_or_passes_on = re.compile(r"^ *class \w+\(|def __getattr__\(", re.MULTILINE)
    trees = {file: ast.parse(text) for file, text in texts.items() if derives_or_passes_on.search(text)}
    return {node: file for file, tree in trees.items() for node in _classes(tree)}


def _classes(tree: ast.AST) -> Iterator[ast.ClassDef]:
    """Every class in a tree. A class is a statement: expressions are not searched."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield node
        if not isinstance(node, ast.expr):
            yield from _classes(node)


# -- the tests --------------------------------------------------------------------------------------------------------


def test_the_contract_of_stores_is_narrow() -> None:
    found = [name for name, verb in vars(Store).items() if callable(verb) and not name.startswith("_")]
    assert len(found) == VERBS, "the number of verbs may only fall: lower VERBS"


def test_doubles_of_stores_have_the_verbs_of_stores() -> None:
    classes, verbs = classes_in_tests(), verbs_of_stores()
    doubles = doubles_of(classes)
    assert len(doubles) > 15
    found = [
        f"{classes[double].name}:{double.lineno}: {double.name} has {verb}, which is not a verb of a store"
        for double in doubles
        for verb in unknown_verbs(double, verbs)
    ]
    assert not found, "\n".join(found)


def test_a_double_with_a_verb_that_no_store_has_is_found() -> None:
    text = """
class Wraps:
    def __init__(self, store): self._store = store
    def __getattr__(self, name): return getattr(self._store, name)
    def commit(self, commit): return self._store.commit(commit)
    def tell(self, row): return self._store.post(row)

class Below(Wraps):
    def park(self): pass
    def _help(self): pass

class Derived(memory.MemoryStore):
    def deeds(self): pass

class Asks:
    def __getattr__(self, name):
        return None if name == "effects" else getattr(self._store, name)
    def journal(self): self._store.journal_all()

class Connection:
    def __getattr__(self, name): return getattr(self._writer, name)
    def execute(self): pass
"""
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    found = {each.name: list(unknown_verbs(each, verbs_of_stores())) for each in doubles_of(classes)}
    assert found == {"Wraps": ["tell"], "Derived": ["deeds"], "Asks": ["effects", "journal_all"], "Below": ["park"]}


def test_all_packages_follow_the_rules() -> None:
    found = list(problems(modules()))
    assert not found, "\n".join(found)


def test_the_lists_name_what_is_there() -> None:
    for name, packages in SAME_PART.items():
        assert {f"{package}.{name}".lstrip(".") for package in packages} <= set(modules())
        assert len({package.rpartition(".")[0] for package in packages}) == 1, f"{name}: not in sibling packages"
    for name, places in SAME_CLASS.items():
        assert classes_of(places)[name] == places, name


def test_each_rule_finds_what_it_forbids() -> None:
    assert len(list(repeated_names(["runs.keys", "stores.keys"], {}))) == 1
    assert len(list(repeated_names(["runs.keys", "keys"], {}))) == 1
    assert not list(repeated_names(["stores.a.errors", "stores.b.errors"], {"errors": {"stores.a", "stores.b"}}))
    assert len(list(gerunds(["looking.tree", "runs.acting", "stores.reading_back", "crypto.ring"]))) == 2
    assert len(list(gerunds(["looking"]))) == 1
    assert len(list(repeated_classes({"Line": {"a", "b"}, "Run": {"a"}, "Key": {"a", "b"}}, {"Key": {"a", "b"}}))) == 1
    assert len(list(long_modules({"a": LINES_MAX, "b": LINES_MAX + 1}))) == 1


if __name__ == "__main__":
    print("\n".join(problems(modules())))  # noqa: T201
