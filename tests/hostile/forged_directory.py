"""Lines of a directory store changed by somebody who can write its files and compute their checksums."""

from __future__ import annotations

import atexit
import contextlib
import json
import random
import shutil
import tempfile
from functools import cache
from pathlib import Path

import holdfast
from holdfast.formats import lines
from tests.hostile.forging import forged_value
from tests.hostile.scene import build, tour

_DEEP = b'{"t":"cell","seq":1,"log":16,"at":0,"cell":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
_STRANGE = (b"{}", b"[]", b'{"t":"cell"}', b'{"t":"no such"}', b'{"t":"end","of":"c999999999999","number":1}', _DEEP)


@cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-hostile-")) / "agents"
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    with holdfast.open(f"dir:{folder}", durability="off") as hf:
        build(hf)
    return folder


def attempt(seed: int) -> None:
    """One tour over a store with a forged line or file. Whatever it raises is a defect."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "agents"
        shutil.copytree(_template(), folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
        logs = [path for path in files if path.suffix == ".jsonl"]
        path = rng.choice(logs if rng.random() < 0.9 else files)
        if path.suffix == ".jsonl":
            _forge_log(path, rng)
        elif path.suffix == ".json":
            forged = forged_value(json.loads(path.read_bytes()), rng)
            path.write_bytes(_as_json(forged) or b"[" * 5000)
        else:
            path.write_bytes(rng.choice((b"", b"x", b"[-1]", path.read_bytes() * 2)))
        with contextlib.suppress(holdfast.HoldfastError), holdfast.open(f"dir:{folder}", durability="off") as hf:
            tour(hf)


def _forge_log(path: Path, rng: random.Random) -> None:
    written = path.read_bytes().splitlines()
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(written))
        match rng.randrange(12):
            case 0:
                written.insert(at, lines.reseal(rng.choice(_STRANGE)).rstrip(b"\n"))
            case 1:
                del written[at]
            case 2:
                written.insert(at, rng.choice(written))
            case _:
                try:
                    record = json.loads(written[at])
                except (ValueError, RecursionError):
                    continue  # forged before
                record.pop("crc", None)
                tag = record.pop("t", "cell")
                forged = forged_value(record, rng)
                body = _as_json({"t": tag, **forged} if isinstance(forged, dict) else forged)
                if body is not None:
                    written[at] = lines.reseal(body).rstrip(b"\n")
    path.write_bytes(b"\n".join(written) + b"\n")


def _as_json(value: object) -> bytes | None:
    try:
        return json.dumps(value, separators=(",", ":"), default=lambda _: "x", ensure_ascii=False).encode()
    except (UnicodeEncodeError, ValueError):
        return None
