"""Code that the library may not contain: stored data that runs, SQL built from text, printing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.source import modules, tree_of

EXECUTING_MODULES = {
    *("pickle", "_pickle", "pickletools", "marshal", "shelve", "dbm", "dill", "cloudpickle", "jsonpickle", "copyreg"),
    *("joblib", "yaml", "ruamel", "code", "codeop", "runpy", "imp", "pkgutil", "zipimport", "pydoc", "ctypes", "cffi"),
    *("xmlrpc", "multiprocessing", "logging.config"),
}
EXECUTING_BUILTINS = {"eval", "exec", "compile", "__import__"}
# Methods that tell whoever unpickles or copies an object what to call. Those of ours are of errors and of one constant,
# for programs that send them between their own processes.
REVIVING = {"__reduce__", "__reduce_ex__", "__setstate__", "__getnewargs__", "__getnewargs_ex__"}
REVIVED = {("errors", "__reduce__"), ("types", "__reduce__")}
RUNNING = {"system", "popen", "execv", "execve", "execvp", "execvpe", "spawnv", "spawnl", "posix_spawn", "startfile"}
EXECUTE = {"execute", "executemany", "executescript"}

# PRAGMA takes no bound parameters. Any module may put its own constants and what can only be a number into one; these
# are the others, each looked at: module and text, and where the names in them come from.
PRAGMAS = {
    ("stores.sqlite.connection", "f'PRAGMA {name} = {value}'"),  # a table of settings in the module
    ("stores.sqlite.schema", "f'PRAGMA {name}'"),  # tables of settings in the modules next to it, and literals
}

# Modules that import a name from a variable: module and call. No name comes from stored data.
IMPORTS = {
    ("cli.named_objects", "importlib.import_module(name)"),  # written by the person at the command line
    ("cli.main", "import_module(f'holdfast.cli.{VERBS[cmd_name][0]}')"),  # a table in the module
    ("codec.registry", "importlib.import_module(package)"),  # one of two names in the module
    ("", "import_module(_HOMES[name])"),  # a table in the module
    ("", "import_module(f'holdfast.{name}')"),  # the same
}


# Who may import what could run code, and what for.
STARTING = {
    ("stores.clock", "ctypes"),  # macOS tells by sysctlbyname alone when it was booted; the names are written there
    # A drill sends the agent through a pipe to the processes that it starts; nothing of it is stored.
    ("drill.seeds", "pickle"),
    ("drill.seeds", "multiprocessing"),
    # Copies and comparisons of messages in memory; nothing of them is stored.
    ("adapters.langgraph.messages", "marshal"),
    ("adapters.langgraph.messages", "pickle"),
    ("cli.named_objects", "pkgutil"),  # a name from the command line, found without being imported
}


def problems(module: str, tree: ast.Module) -> list[str]:
    """Everything forbidden in `module` (a dotted name without `holdfast.`)."""
    constants = _constants(tree)
    found = [problem for node in ast.walk(tree) for problem in _problems(module, node, constants)]
    return [f"{module}:{problem}" for problem in found]


def _constants(tree: ast.Module) -> set[str]:
    """Names that the module sets once, at its top, to a literal."""
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    constants: set[str] = set()
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant()):
                constants.add(name)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant()):
                constants.add(name)
            case _:
                pass
    return {name for name in constants if names.count(name) == 1}


def _problems(module: str, node: ast.AST, constants: set[str]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            for alias in names:
                yield from _import(module, node.lineno, alias.name)
        case ast.ImportFrom(module=source, names=names, level=0) if source is not None:
            for alias in names:
                whole = f"{source}.{alias.name}"
                yield from _import(module, node.lineno, whole if whole in EXECUTING_MODULES else source)
        case ast.ImportFrom():
            yield f"{node.lineno}: a relative import hides its layer"
        case ast.Name(id=name) if name in EXECUTING_BUILTINS:
            yield f"{node.lineno}: {name} runs data"
        case ast.Attribute(value=ast.Name(id="builtins"), attr=name) if name in EXECUTING_BUILTINS:
            yield f"{node.lineno}: {name} runs data"
        case ast.FunctionDef(name=name) if name in REVIVING and (module, name) not in REVIVED:
            yield f"{node.lineno}: {name} says what is called when something is read back"
        case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr=name)) if name in RUNNING:
            yield f"{node.lineno}: os.{name} runs a command"
        case ast.Call(keywords=words) if any(_is_shell(word) for word in words):
            yield f"{node.lineno}: a shell is given text"
        case ast.Call(
            func=ast.Attribute(attr="spec_from_file_location" | "module_from_spec" | "exec_module" | "load_module")
        ):
            yield f"{node.lineno}: a module is loaded by hand"
        case ast.Call(func=ast.Name(id="print")):
            yield f"{node.lineno}: a library does not print"
        case ast.Call(func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"), args=arguments):
            written = arguments and all(isinstance(argument, ast.Constant) for argument in arguments)
            if not written and (module, ast.unparse(node)) not in IMPORTS:
                yield f"{node.lineno}: import_module of something that is not written here"
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in EXECUTE:
            first = node.args[0] if node.args else next((word.value for word in node.keywords), None)
            if first is not None and _is_built(first) and not _is_pragma(module, first, constants):
                yield f"{node.lineno}: SQL built from text"
        case _:
            pass


def _is_shell(word: ast.keyword) -> bool:
    return word.arg == "shell" and not (isinstance(word.value, ast.Constant) and word.value.value is False)


def _is_built(node: ast.expr) -> bool:
    match node:
        case ast.JoinedStr() | ast.BinOp():
            return True
        case ast.Call(func=ast.Attribute(attr="format" | "format_map" | "join" | "replace")):
            return True
        case ast.IfExp(body=body, orelse=orelse):
            return _is_built(body) or _is_built(orelse)
        case ast.NamedExpr(value=value):
            return _is_built(value)
        case _:
            return False


def _is_pragma(module: str, node: ast.expr, constants: set[str]) -> bool:
    """A PRAGMA made of nothing but constants of its module and numbers, or one of the list."""
    if (module, ast.unparse(node)) in PRAGMAS:
        return True
    match node:
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *rest]) if text.startswith("PRAGMA "):
            return all(isinstance(part, ast.Constant) or _is_harmless(part, constants) for part in rest)
        case _:
            return False


def _is_harmless(part: ast.expr, constants: set[str]) -> bool:
    match part:
        case ast.FormattedValue(format_spec=ast.JoinedStr(values=[ast.Constant(value="d")])):
            return True  # raises for anything but an int
        case ast.FormattedValue(value=ast.Call(func=ast.Name(id="int"))):
            return True
        case ast.FormattedValue(value=ast.Name(id=name)):
            return name in constants
        case _:
            return False


def _import(module: str, line: int, name: str) -> Iterator[str]:
    top = name.partition(".")[0]
    if (top in EXECUTING_MODULES or name in EXECUTING_MODULES) and (module, top) not in STARTING:
        yield f"{line}: {top} can run what it reads"


def test_every_exception_is_needed() -> None:
    for module, text in PRAGMAS:
        tree = tree_of(module)
        assert text in {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)}
    for module, name in STARTING:
        tree = tree_of(module)
        plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert name in plain | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    for module, name in REVIVED:
        tree = tree_of(module)
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for module, text in IMPORTS:
        tree = tree_of(module)
        assert text in {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def test_the_library_is_found() -> None:
    assert {"", "errors", "stores"} <= set(modules())


def test_nothing_forbidden() -> None:
    found = [problem for module in modules() for problem in problems(module, tree_of(module))]
    assert not found, "\n".join(found)


FORBIDDEN = [
    "import pickle",
    "import json, pickle as p",
    "from pickle import loads",
    "import marshal",
    "import yaml",
    "import ctypes.util",
    "from logging.config import dictConfig",
    "from logging import config",
    "import runpy",
    "from multiprocessing import Process",
    "compile(text, 'x', 'eval')",
    "class A:\n    def __reduce__(self):\n        return print, ()",
    "class A:\n    def __setstate__(self, state):\n        pass",
    "os.system(name)",
    "subprocess.run(name, shell=True)",
    "subprocess.run(name, shell=flag)",
    "importlib.util.spec_from_file_location(name, path)",
    "def f():\n    import shelve",
    "eval('1')",
    "f = exec",
    "import builtins\nbuiltins.eval(x)",
    "__import__(name)",
    "import importlib\nimportlib.import_module(name)",
    "from importlib import import_module\nimport_module(f'{name}.x')",
    "import_module(name=name)",
    "print('hello')",
    "c.execute(f'SELECT * FROM {table}')",
    "c.execute('SELECT %s' % name)",
    "c.execute('SELECT ' + name)",
    "c.execute('SELECT {}'.format(name))",
    "c.execute(' '.join(parts))",
    "c.execute(sql=f'SELECT {x}')",
    "c.execute(SQL if simple else SQL + where)",
    "c.execute(sql := f'SELECT {x}')",
    "c.executemany(f'INSERT INTO {t}', rows)",
    "c.executescript('DROP TABLE ' + t)",
    "execute(f'SELECT {x}')",
    "def f(version):\n    c.execute(f'PRAGMA user_version = {version}')",
    "VERSION = 1\nVERSION = other\nc.execute(f'PRAGMA user_version = {VERSION}')",
    "VERSION = read()\nc.execute(f'PRAGMA user_version = {VERSION}')",
    "c.execute(f'PRAGMA busy_timeout = {timeout:s}')",
    "c.execute(f'PRAGMA busy_timeout = {int(timeout)}; {more}')",
    "c.execute(f'SELECT {number:d}')",
    "TABLE = 'a'\nc.execute(f'SELECT * FROM {TABLE}')",
    "from . import errors",
    "from ..codec import packed",
]


def test_each_rule_finds_what_it_forbids() -> None:
    assert [source for source in FORBIDDEN if len(problems("anything", ast.parse(source))) != 1] == []


ALLOWED = [
    "import json",
    "import importlib\nimportlib.import_module('langgraph.checkpoint')",
    "re.compile(pattern)",
    "subprocess.run([name], shell=False)",
    "import logging",
    "frame.eval",
    "printer.print(x)",
    "c.execute(SQL['save'], (name, seq))",
    "c.execute('SELECT 1')",
    "c.execute(statements.save)",
    "c.execute(f'PRAGMA incremental_vacuum({pages:d})')",
    "c.execute(f'PRAGMA busy_timeout = {int(seconds * 1000)}')",
    "VERSION: Final = 1\nc.execute(f'PRAGMA user_version = {VERSION}')",
    "raise Damaged(f'{name} is damaged')",
]


def test_each_rule_leaves_the_rest_alone() -> None:
    assert [source for source in ALLOWED if problems("anything", ast.parse(source))] == []
