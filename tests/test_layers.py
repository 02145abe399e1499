"""Layers: what each package may import of the others. Imports go down; no two modules import each other at run time."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from tests.source import below, modules, tree_of

BASE = "errors forksafe ids intervals observer redaction signals text time_limit types"

# Every package and every module directly in holdfast, lowest first: the packages and modules that it may import besides
# itself. A name allows all modules below it. A line for a module inside a package adds to the line of the package.
LAYERS = {
    "errors": "types",
    "types": "errors",
    "ids": "",
    "observer": "runs.tools",  # for type checkers
    "text": "",
    "forksafe": "",
    "signals": "forksafe",
    "intervals": "",
    "time_limit": "",
    "redaction": "errors",
    "policy": "errors",
    "codec": BASE,
    "stores": BASE,
    "stores.log": "codec formats",
    "delta": f"{BASE} codec stores.contract",
    "crypto": f"{BASE} delta.load stores.abilities stores.contract stores.contract_runs stores.rows stores.rules "
    "stores.segments",
    "formats": f"{BASE} codec stores.contract stores.contract_runs",
    "states": BASE,
    "threads": f"{BASE} codec delta formats stores.abilities stores.contract stores.contract_runs",
    "runs": f"{BASE} codec policy stores.abilities stores.contract stores.contract_runs threads",
    "runs.drivers": "aio.run",  # for type checkers
    "runs.run": "aio.run",  # its async face, imported when it is used
    "urls": "codec crypto errors stores",
    "maintenance": f"{BASE} urls stores.abilities stores.contract stores.folder_sync stores.sqlite.backup threads",
    "handle": f"{BASE} aio crypto maintenance urls policy runs stores.contract threads",
    "aio": f"{BASE} codec crypto handle maintenance urls policy runs stores.contract threads",
    "__init__": "aio crypto errors handle maintenance policy types runs threads",
    "telemetry": f"{BASE} handle",
    "inspect": f"{BASE} codec handle urls runs stores.abilities stores.contract stores.contract_runs threads",
    "inspect.graph_actions": "adapters.langgraph",  # imported when it is used
    "adapters": f"{BASE} aio codec delta handle policy runs stores.contract stores.contract_runs threads",
    "importers": f"{BASE} adapters codec delta formats handle stores.contract stores.contract_runs threads "
    "stores.log.replay",
    "exporters": f"{BASE} codec delta formats handle inspect runs stores.contract stores.contract_runs threads",
    "ui": f"{BASE} codec exporters handle inspect runs threads",
    "drill": f"{BASE} __init__ codec handle urls policy runs stores.contract stores.contract_runs threads",
    "testing": f"{BASE} codec drill runs stores.contract stores.contract_runs threads",
    "demo": f"{BASE} __init__ testing",
    "cli": f"{BASE} aio codec exporters handle importers maintenance inspect urls runs stores.contract_runs threads ui",
    "cli.programs": "demo drill",
    "__main__": "cli",
}


def rooms() -> list[str]:
    """Every package and module directly in holdfast; `__init__` is holdfast itself."""
    return sorted({module.partition(".")[0] or "__init__" for module in modules()})


class Import(NamedTuple):
    """A module of holdfast that another imports. Not at run time: in a function, or for type checkers only."""

    line: int
    target: str
    is_at_run_time: bool


def imports(tree: ast.AST, *, is_at_run_time: bool = True) -> Iterator[Import]:
    """Every import of a module of holdfast."""
    match tree:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            is_at_run_time = False
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=[]):
            is_at_run_time = False
        case ast.Import(names=names):
            yield from _of_holdfast(tree.lineno, [alias.name for alias in names], is_at_run_time)
        case ast.ImportFrom(module=str(source), names=names, level=0):
            # `from holdfast.stores import contract` imports a module, `from holdfast.errors import Busy` a name.
            inner = [f"{source}.{alias.name}" for alias in names]
            whole = [name if name.removeprefix("holdfast.") in modules() else source for name in inner]
            yield from _of_holdfast(tree.lineno, whole, is_at_run_time)
        case ast.expr():
            return
        case _:
            pass
    for node in ast.iter_child_nodes(tree):
        yield from imports(node, is_at_run_time=is_at_run_time)


def _of_holdfast(line: int, names: list[str], is_at_run_time: bool) -> Iterator[Import]:
    for name in names:
        if below("holdfast", name):
            yield Import(line, name.removeprefix("holdfast").removeprefix(".") or "__init__", is_at_run_time)


@cache
def all_imports() -> dict[str, list[Import]]:
    """The imports of every module; `__init__` is holdfast itself."""
    return {module or "__init__": list(imports(tree_of(module))) for module in modules()}


def breaches(module: str, found: Iterable[Import]) -> Iterator[str]:
    """The imports of a module that its layer does not allow."""
    own = module.partition(".")[0]
    allowed = [own, *(name for key, names in LAYERS.items() if below(key, module) for name in names.split())]
    for line, target, _ in found:
        if not any(below(name, target) for name in allowed):
            yield f"{module}:{line}: may not import {target}"


def test_every_room_has_a_line() -> None:
    assert [room for room in rooms() if room not in LAYERS] == []


def test_every_name_in_the_table_is_there() -> None:
    names = {name for key, allowed in LAYERS.items() for name in (key, *allowed.split())}
    assert sorted(names - {*modules(), "__init__"}) == []


def test_imports_go_down() -> None:
    problems = [problem for module, found in all_imports().items() for problem in breaches(module, found)]
    assert not problems, "\n".join(problems)


def test_the_read_model_is_used_by_its_public_names() -> None:
    """Only `holdfast.inspect` itself is imported, and the two modules about LangGraph, whose names are not in it."""
    public = ("inspect.graphs", "inspect.graph_actions")
    private = [
        f"{module}:{each.line}: imports {each.target}; import it from holdfast.inspect"
        for module, found in all_imports().items()
        for each in found
        if each.target.startswith("inspect.") and each.target not in public and not below("inspect", module)
    ]
    assert not private, "\n".join(private)


def test_no_modules_import_each_other() -> None:
    graph = {module: {each.target for each in found if each.is_at_run_time} for module, found in all_imports().items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError("a cycle at run time: " + " ← ".join(error.args[1])) from None


FORBIDDEN = [
    ("stores.sqlite.store", "from holdfast.state import parts"),
    ("stores.sqlite", "import holdfast.threads.thread"),
    ("stores.sqlite", "from holdfast import Store"),
    ("codec.packed", "from holdfast.stores.contract import Span"),
    ("codec.packed", "def f():\n    from holdfast.threads import diff"),
    ("delta.base", "from holdfast.stores.sqlite.memory import MemoryStore"),
    ("threads.thread", "if TYPE_CHECKING:\n    from holdfast.runs.run import Run"),
    ("handle", "from holdfast.testing import StoreContract"),
    ("__init__", "import holdfast.testing.contract"),
    ("cli.log", "from holdfast.drill import spec"),
    ("inspect.thread_list", "from holdfast.stores.postgres import address"),
]
ALLOWED = [
    ("stores.sqlite.store", "from holdfast.stores.contract import Span"),
    ("delta.base", "from holdfast.stores import contract"),
    ("threads.diff", "import holdfast.codec.packed"),
    ("cli.programs", "from holdfast.drill import spec"),
    ("__init__", "from holdfast.handle import Holdfast"),
    ("errors", "import json"),
]


def test_breaches_are_found() -> None:
    assert [each for each in FORBIDDEN if len(list(breaches(each[0], imports(ast.parse(each[1]))))) != 1] == []
    assert [each for each in ALLOWED if list(breaches(each[0], imports(ast.parse(each[1]))))] == []


def test_only_imports_of_the_module_itself_are_at_run_time() -> None:
    source = """
import holdfast.errors
class A:
    from holdfast import types
    def f(self):
        from holdfast import codec
if TYPE_CHECKING:
    import holdfast.handle
try:
    from holdfast.stores import contract
except ImportError:
    pass
"""
    found = [each.target for each in imports(ast.parse(source)) if each.is_at_run_time]
    assert found == ["errors", "types", "stores.contract"]
