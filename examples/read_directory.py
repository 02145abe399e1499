"""Print the messages of a thread's head from a directory store, with only the standard library.

Start it with: python read_directory.py STORE/NAMESPACE THREAD. docs/reference/format.md describes the format.
"""

import json
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zlib import crc32


def parse(source: bytes | Path) -> Any:
    line = source if isinstance(source, bytes) else source.open("rb").readline()[:-1]
    return json.loads(line) if line[:18] == b'{"crc":"%08x",' % crc32(line[18:]) else {}


@cache
def read(log: Path) -> tuple[int, dict[Any, Any]]:
    head, number, known, group = 0, 0, dict[Any, Any](), list[Any]()
    for n, line in enumerate(log.read_bytes().split(b"\n")[:-1], 1):
        group.append(parse(line))
        if not group[-1] or group[-1].get("group", number + 1) <= number:
            raise SystemExit(f"{log}: line {n} is damaged or duplicated")
        if group[-1]["t"] == "end":
            known |= {(one["log"], one["at"]) if one["t"] == "cell" else one.get("seq"): one for one in group}
            head, number, group = group[-1].get("at", {}).get("head", head), group[-1]["group"], []
    return head, known


def state(space: Path, thread: str) -> Any:
    for log in space.glob("threads/*/log.jsonl"):
        if thread == (parse(log).get("name") if "~" in log.parent.name else unquote(log.parent.name)):
            head, known = read(log)
            return resolve((body := known[head]["skeleton"][4]).get("$packed", body), references(known[head]), log)
    raise SystemExit("the thread does not exist")


def references(record: Any) -> Any:
    return {kind: iter(record.get("refs", {}).get(kind, ())) for kind in ("spans", "blobs")}


def find(span: list[int], log: Path) -> list[tuple[Any, Path]]:
    if span[0]:
        [log] = [other for other in log.parents[2].glob("*/*/log.jsonl") if parse(other).get("number") == span[0]]
    return [(read(log)[1][span[1], at], log) for at in range(span[2], span[2] + span[3])]


def resolve(shown: Any, refs: Any, log: Path) -> Any:
    def cells(span: list[int], log: Path) -> list[Any]:
        return [resolve(cell["cell"], references(cell), owner) for cell, owner in find(span, log)]

    tag, held = next(iter(shown.items())) if isinstance(shown, dict) and len(shown) == 1 else ("", shown)
    if tag in ("$cell", "$map"):
        return cells(next(refs["spans"]), log)[0]
    if tag == "$series":
        spans = [(next(refs["spans"]), log) for _ in range(held[2])]
        for _ in range(held[1]):  # tables: cells that only refer to other cells
            spans = [(inner, at) for span in spans for cell, at in find(*span) for inner in cell["refs"]["spans"]]
        items = [item for span in spans for item in cells(*span)]
        if 2 < held[0] < 6:  # lists of several short items, or pieces of a text
            return "".join(items) if held[0] == 5 else [item for piece in items for item in piece]
        return dict(item["$items"] for item in items) if held[0] == 2 else items
    if tag in ("$text", "$binary", "$any"):
        data = (log.parents[2] / "blobs" / (digest := next(refs["blobs"]))[:2] / digest).read_bytes()
        if sha256(data).hexdigest() != digest:
            raise SystemExit(f"the blob {digest} is damaged")
        return data.decode() if tag == "$text" else {tag: digest}
    if isinstance(shown, dict):  # $object is a user's dict with a single key that starts with $
        return {key: resolve(item, refs, log) for key, item in (held if tag == "$object" else shown).items()}
    return [resolve(item, refs, log) for item in shown] if isinstance(shown, list) else shown


if __name__ == "__main__":
    for message in state(Path(sys.argv[1]), sys.argv[2])["messages"]:
        print(json.dumps(message, ensure_ascii=False))
