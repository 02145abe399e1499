"""Pools of connections: an interrupt at any instruction of a call loses no connection of the pool."""

from __future__ import annotations

import dis
import gc
import os
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.stores import rows
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.contract.build import saved
from tests.stores.postgres.server import reused_address_at

STORES = f"{Path(rows.__file__).parent}{os.sep}"
# After these instructions, Python runs the handlers of signals.
CHECKS = frozenset(("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME"))


class Interrupt(BaseException):
    """An interrupt, as Ctrl-C or SIGTERM."""


@cache
def points(code: CodeType) -> frozenset[int]:
    """The offsets of the instructions before which an interrupt can come."""
    instructions = list(dis.get_instructions(code))
    return frozenset(then.offset for one, then in pairwise(instructions) if one.opname in CHECKS)


def interrupted(call: Callable[[], object], at: int) -> bool:
    """Make a call, and interrupt it at one point in the stores' code. False if the call has fewer."""
    left = at
    struck = False

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left, struck
        if not frame.f_code.co_filename.startswith(STORES):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in points(frame.f_code):
            left -= 1
            if left == 0:
                struck = True
                sys.settrace(None)
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(Interrupt, HoldfastError):
            call()
    finally:
        sys.settrace(before)
    return struck


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("verb", ["head", "rewind"])
def test_an_interrupt_loses_no_connection(kind: str, verb: str, tmp_path: Path) -> None:
    store: SQLiteStore | PostgresStore
    if kind == "sqlite":
        store = SQLiteStore(tmp_path / "a.db", namespace="default", durability="off")
        pool: Any = store._readers
    else:
        store = PostgresStore(reused_address_at(tmp_path), namespace="default", connections=2, patience=0.5)
        pool = store._pool
    with closing(store):
        line = saved(store, "t", "x", "y")

        def rewind() -> None:
            head = store.head("t")
            assert head is not None
            store.rewind(head.thread.position, to=1, summary=head.thread.summary)

        call: Callable[[], object] = rewind if verb == "rewind" else lambda: store.head("t")
        call()
        at = 1
        while interrupted(call, at):
            at += 1
            gc.collect()
            assert not pool.in_use, f"interrupted at {at - 1}"
        assert at > 20
        assert line.stored().position.last == 2
