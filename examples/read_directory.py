"""Prints the messages of a thread's newest checkpoint from a directory store, with the standard library alone.

    python read_directory.py STORE/NAMESPACE THREAD

docs/format.md says what it relies on. It checks every line it reads, and needs neither Holdfast nor a lock.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zlib import crc32


def read_log(path: Path) -> tuple[int, dict[Any, Any]]:
    """The head of a thread, and its checkpoints and cells: what the whole groups of its log say, in order."""
    head = 0
    known: dict[Any, Any] = {}
    group: list[Any] = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        if line[8:16] != b"%08x" % crc32(line[18:]):
            raise SystemExit(f"{path}: a damaged line: {line[:40]!r}")
        record = json.loads(line)
        group.append(record)
        if record["t"] == "end":
            known |= {(one["log"], one["at"]): one for one in group if one["t"] == "cell"}
            known |= {one["seq"]: one for one in group if one["t"] == "checkpoint"}
            head, group = record.get("at", {}).get("head", head), []
    return head, known


class Reader:
    def __init__(self, space: Path, thread: str) -> None:
        self.space = space
        log = next(log for log in space.glob("threads/*/log.jsonl") if unquote(log.parent.name) == thread)
        self.head, known = read_log(log)
        self.threads = {0: known}

    def state(self) -> Any:
        row = self.threads[0][self.head]
        return self.resolve(row["skeleton"][4]["$packed"], *references(row), 0)

    def cells(self, span: list[int], owner: int) -> list[Any]:
        """The values of the cells of a span; thread 0 is the one that owns the record that names the span."""
        return [self.resolve(cell["cell"], *references(cell), at) for cell, at in self.find(span, owner)]

    def find(self, span: list[int], owner: int) -> list[tuple[Any, int]]:
        thread, log, start, count = (span[0] or owner, *span[1:4])
        if thread not in self.threads:  # a fork names cells of the thread it came from, by number
            logs = self.space.glob("*/*/log.jsonl")
            path = next(path for path in logs if json.loads(path.open().readline())["number"] == thread)
            self.threads[thread] = read_log(path)[1]
        return [(self.threads[thread][log, at], thread) for at in range(start, start + count)]

    def resolve(self, shown: Any, spans: Iterator[list[int]], values: Iterator[str], owner: int) -> Any:
        if isinstance(shown, list):
            return [self.resolve(item, spans, values, owner) for item in shown]
        if not isinstance(shown, dict) or "$object" in shown:
            return shown
        match list(shown.items()):
            case [("$cell" | "$map", _)]:
                return self.cells(next(spans), owner)[0]
            case [("$series", [kind, level, count, _])]:
                named = [(next(spans), owner) for _ in range(count)]
                for _ in range(level):  # tables: cells that only name other cells
                    named = [
                        (inner, at) for one in named for cell, at in self.find(*one) for inner in cell["refs"]["spans"]
                    ]
                items = [item for one in named for item in self.cells(*one)]
                return items if kind < 2 else dict(item["$items"] for item in items)
            case [("$text" | "$binary" | "$any", _)]:
                digest = next(values)
                return (self.space / "values" / digest[:2] / digest).read_bytes().decode(errors="replace")
        return {key: self.resolve(item, spans, values, owner) for key, item in shown.items()}


def references(record: Any) -> tuple[Iterator[list[int]], Iterator[str]]:
    refs = record.get("refs", {})
    return iter(refs.get("spans", ())), iter(refs.get("values", ()))


if __name__ == "__main__":
    for message in Reader(Path(sys.argv[1]), sys.argv[2]).state()["messages"]:
        print(json.dumps(message, ensure_ascii=False))
