"""Errors and logs never hold what was stored: a secret in every payload, every error that can be had, and a search.

What the user's own code raises is its own affair, and so are names: of threads, labels, questions, tools and files.
"""

from __future__ import annotations

import contextlib
import logging
import random
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import Cipher, Holdfast
from holdfast.errors import HoldfastError
from tests.hostile import forged_sqlite

SECRET = "s3cr3t-payload-7f1d"  # noqa: S105 - what is looked for, and opens nothing
STATE: dict[str, Any] = {"messages": [{"content": f"my key is {SECRET}"}], "large": SECRET * 3000}


class Typed(msgspec.Struct):
    count: int


@holdfast.tool(effect="irreversible")
def pay(word: str) -> str:
    return f"{SECRET} {word}"


@holdfast.tool(effect="idempotent")
def act(word: str) -> object:
    return object()


def shown(error: BaseException) -> str:
    """All that anybody would see of an error, its causes and contexts included."""
    lines = traceback.format_exception(error)
    # The lines of source code in a traceback are not what was stored.
    said = [line for line in lines if not line.startswith('  File "')]
    return "".join((str(error), repr(error), repr(error.args), *said))


@pytest.fixture
def logs() -> Iterator[list[str]]:
    """Whatever any logger says, at any level."""
    heard: list[str] = []

    class Hearing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(self.format(record))

    root, handler = logging.getLogger(), Hearing()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield heard
    root.removeHandler(handler)
    root.setLevel(level)


def saved(hf: Holdfast, name: str = "main") -> Holdfast:
    hf.thread(name).save(STATE, metadata={"user": SECRET}, tags=[SECRET], reason=SECRET)
    hf.thread(name).save(STATE | {"n": 2}, label="label")
    return hf


def unsupported(hf: Holdfast) -> None:
    hf.thread("main").save({"key": SECRET, "object": {SECRET: object()}.values()})


def unsupported_metadata(hf: Holdfast) -> None:
    hf.thread("main").save({}, metadata={"a": {1: object(), "secret": SECRET}})


def bytearray_of_it(hf: Holdfast) -> None:
    hf.thread("main").save({"a": bytearray(SECRET.encode())})


def wrong_type(hf: Holdfast) -> None:
    hf.thread("main", type=Typed).latest()


def wrong_type_saved(hf: Holdfast) -> None:
    hf.thread("main", type=Typed).save(Typed(count=SECRET))  # type: ignore[arg-type] # what is tested


def wrong_usage(hf: Holdfast) -> None:
    hf.thread("main").save({}, usage={"input": SECRET})


def wrong_status(hf: Holdfast) -> None:
    hf.thread("main").save(STATE, status=SECRET)  # type: ignore[arg-type] # what is tested


def too_large(hf: Holdfast) -> None:
    with holdfast.open("memory:", max_state_bytes=100) as small:
        small.thread("main").save(STATE)


def conflict(hf: Holdfast) -> None:
    hf.thread("main").fork("main", state=STATE)


def unknown_answer(hf: Holdfast) -> None:
    hf.answer("main", "question", STATE)


def another_answer(hf: Holdfast) -> None:
    with hf.run("asking", start=STATE) as run:
        run.wait("approve", {"secret": SECRET})
    hf.answer("asking", "approve", SECRET)
    hf.answer("asking", "approve", SECRET + " and more")


def unsupported_answer(hf: Holdfast) -> None:
    with hf.run("asking", start=STATE) as run:
        run.wait("approve", {"secret": SECRET})
    hf.answer("asking", "approve", {SECRET, object()})


def lease_held(hf: Holdfast) -> None:
    with hf.run("held", start=STATE):
        hf.run("held", start=STATE).__enter__()


def bad_arguments(hf: Holdfast) -> None:
    with hf.run("calls", start=STATE) as run:
        run.tool(pay, {"word": object(), "secret": SECRET})


def unstorable_result(hf: Holdfast) -> None:
    with hf.run("unstorable", start=STATE) as run:
        run.model(lambda: {"secret": SECRET, "object": object()})


def effects_ahead(hf: Holdfast) -> None:
    with hf.run("ahead", start=STATE) as run:
        for _ in run.steps():
            run.tool(pay, {"word": SECRET})
            run.save()
            run.finish(STATE)
    hf.thread("ahead").rewind("1")


def not_recorded(hf: Holdfast) -> None:
    with hf.run("recorded", start=STATE, effects="recorded") as run:
        run.tool(pay, {"word": SECRET})


def unfinished_turn(hf: Holdfast) -> None:
    with hf.run("turns", start=STATE, turn="one") as run:
        run.wait("approve", SECRET)
    hf.run("turns", start=STATE, turn="two").__enter__()


def closed(hf: Holdfast) -> None:
    hf.close()
    hf.thread("main").save(STATE)


PROVOKED: dict[str, Callable[[Holdfast], None]] = {
    made.__name__: made
    for made in (
        *(unsupported, unsupported_metadata, bytearray_of_it, wrong_type, wrong_type_saved, wrong_usage, wrong_status),
        *(too_large, conflict, unknown_answer, another_answer, unsupported_answer, lease_held, bad_arguments),
        *(unstorable_result, effects_ahead, not_recorded, unfinished_turn, closed),
    )
}


@pytest.mark.parametrize("name", PROVOKED)
def test_no_refusal_tells_it(name: str, tmp_path: Path, logs: list[str]) -> None:
    with holdfast.open(tmp_path / "agent.db", durability="off") as hf:
        saved(hf)
        with pytest.raises(HoldfastError) as caught:
            PROVOKED[name](hf)
    assert SECRET not in shown(caught.value)
    assert SECRET not in "".join(logs)


def test_no_error_of_a_damaged_store_tells_it(tmp_path: Path, logs: list[str]) -> None:
    """Every blob of a store changed in turn, with its checksum and without."""
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        saved(hf)
        with hf.run("job", start=STATE) as run:
            run.tool(pay, {"word": SECRET})
            run.wait("approve", SECRET)
    whole = path.read_bytes()
    told: list[str] = []
    for table, column in (
        *(("checkpoint", "head"), ("checkpoint", "meta"), ("checkpoint", "refs"), ("checkpoint", "skeleton")),
        *(("checkpoint", "cells"), ("run", "record"), ("entry", "record"), ("piece", "data")),
    ):
        path.write_bytes(whole)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute(f"UPDATE {table} SET {column} = CAST({column} || x'00' AS BLOB)")  # noqa: S608 - names of the schema
            connection.commit()
        told += _all_told(path)
    for seed in range(40):
        path.write_bytes(whole)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            forged_sqlite._forge(connection, random.Random(seed))
            connection.commit()
        told += _all_told(path)
    assert len(told) > 20
    assert SECRET not in "".join(told)
    assert SECRET not in "".join(logs)


def _all_told(path: Path) -> list[str]:
    told: list[str] = []
    with holdfast.open(path, durability="off") as hf:
        for call in (
            *(hf.thread("main").latest, lambda: hf.thread("main").load("1"), lambda: list(hf.thread("main").history())),
            *(lambda: hf.effects("job"), lambda: list(hf.waiting()), lambda: hf.run("job").__enter__()),
            lambda: told.extend(problem.what for problem in hf.verify().problems),
        ):
            try:
                call()
            except HoldfastError as error:
                told.append(shown(error))
    return told


def test_no_error_of_a_wrong_key_tells_it(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    key, other = b"k" * 32, b"o" * 32
    with holdfast.open(path, cipher=Cipher(keys={"one": key}, current="one")) as hf:
        saved(hf)
    for opened in (
        lambda: holdfast.open(path, cipher=Cipher(keys={"one": other}, current="one")),
        lambda: holdfast.open(path, cipher=Cipher(keys={"two": other}, current="two")),
        lambda: holdfast.open(path).thread("main").latest(),
    ):
        with pytest.raises(HoldfastError) as caught:
            opened()
        for secret in (SECRET, key.decode(), other.decode(), key.hex()):
            assert secret not in shown(caught.value)
    assert key.decode() not in repr(Cipher(keys={"one": key}, current="one"))


def test_the_handle_and_what_it_gives_do_not_show_it_by_themselves(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db", durability="off") as hf:
        saved(hf)
        assert SECRET not in repr(hf) + repr(hf.thread("main"))
