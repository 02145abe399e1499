"""Records that are sealed as ours, decode, and say what cannot be: loading, listing and checking end in `Damaged`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.errors import Damaged, HoldfastError
from tests.stores.log.conftest import log_of
from tests.stores.log.test_forged import forge

HUGE = b"1" + b"0" * 30


@pytest.fixture
def log(path: Path) -> Path:
    with holdfast.open(f"dir:{path}", durability="off") as hf:
        for n in (1, 2):
            hf.thread("t").save({"files": {f"f{at}": "x" * 50 for at in range(100 + n)}, "n": n}, step=77)
    return log_of(path, "t")


LOOKS: dict[str, Callable[[Holdfast], object]] = {
    "latest": lambda hf: hf.thread("t").latest(),
    "fallback": lambda hf: hf.thread("t").latest(fallback=True),
    "history": lambda hf: list(hf.thread("t").history()),
    "threads": lambda hf: list(hf.threads()),
    "verify": lambda hf: hf.verify(),
    "optimize": lambda hf: hf.optimize(),
    "save": lambda hf: hf.thread("t").save({"n": 3}),
}


@pytest.mark.parametrize(
    ("kind", "old", "new", "hurt"),
    [
        (b"cell", b'"$items":["f101"', b'"$items":[["f101"]', ["latest"]),
        (b"end", b'"updated_at":', b'"updated_at":18446744073709551616,"x":', ["threads"]),
        (b"end", b'"updated_at":', b'"updated_at":-9223372036854775808,"x":', ["threads"]),
        (b"end", b'"last":2', b'"last":4611686018427387904', ["latest", "threads"]),
        (b"checkpoint", b'"step":77', b'"step":' + HUGE, []),
        (b"checkpoint", b'"meta":{"at":', b'"meta":{"at":9223372036854775807,"x":', ["latest"]),
        (b"checkpoint", b'"spans":[[0,', b'"spans":[[0,' + HUGE + b",0,1,1,1],[0,", ["latest"]),
    ],
)
def test_every_look_is_damaged_or_right(
    log: Path, path: Path, kind: bytes, old: bytes, new: bytes, hurt: list[str]
) -> None:
    forge(log, kind, old, new)
    ended: dict[str, HoldfastError | None] = dict.fromkeys(LOOKS)
    for name, look in LOOKS.items():
        with holdfast.open(f"dir:{path}", durability="off") as hf:
            try:
                look(hf)
            except HoldfastError as error:
                ended[name] = error
    assert {type(error) for error in ended.values()} <= {Damaged, type(None)}
    assert [name for name in hurt if ended[name] is None] == []
