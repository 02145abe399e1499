"""The decoders of every store, given records that were forged: whole by their checksums, and not what was written."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.codec import jsontext, msgpack
from holdfast.crypto import records as sealed
from holdfast.crypto.seal import Seal
from holdfast.delta import load
from holdfast.errors import HoldfastError
from holdfast.formats import jsonl, lines
from holdfast.stores import rows, segments
from holdfast.stores.contract import Append, CheckpointRow, Refs, Span
from holdfast.stores.contract_runs import Deadline, Entry, Owner, Progress, RunRow
from holdfast.threads import metadata
from holdfast.types import Usage
from tests.checksums import checksum_of
from tests.hostile.forging import forged_bytes, forged_value
from tests.hostile.texts import CORPUS

KEY = segments.key(1, 1)
CONTEXT = segments.context_of(KEY)
SEAL = Seal(b"12345678", b"k" * 32, b"default")

_RUN = RunRow(
    thread=1,
    status="waiting",
    fence=3,
    reason="waits",
    owner=Owner("host", "boot", 1, 2, 3),
    clock="boot",
    wake_at=5,
    progress=Progress(0.5, 1.0, "half", 6),
    result=msgpack.encode({"total": 3}),
)
_EFFECT = Entry(
    branch=1,
    step=1,
    key="k#1",
    name="k",
    kind="model",
    status="done",
    arguments=b"a" * 32,
    fence=1,
    started_at=1,
    call=msgpack.encode({"a": 1}),
    result=msgpack.encode([1]),
    topic="wait:k",
    deadline=Deadline("boot", 1, 2),
    usage=Usage(input=3),
    number=1,
)
_ROW = CheckpointRow(seq=1, id=b"i" * 16, parent=None, step=1, move=1, digest=b"d" * 32)
_META = metadata.encode(
    metadata.Meta(created_at=1, size=2, tags=("a",), metadata=msgpack.encode({"a": 1}), usage=Usage(input=1))
)
_REFS = Refs((Span(0, 16, 0, 2, 1, 1),), (b"v" * 32,))
_SEGMENT = segments.draft([Append(16, 0, (b"cell", b"other"), (_REFS, Refs())), Append(18, 0, (b"x" * 300,))])
_VALUE = msgpack.encode({"a": (1, {2}, 2.5), "b": [b"bytes", None, {1: "one"}], "c": "text" * 20})


def read_run(data: bytes) -> object:
    columns = (1, b"default", b"waiting", 3, 0, b"boot", 5, 0, None, 0, 0)
    lease = (0, rows.lease_checksum(1, 3, 0))
    return rows.read_run((*columns, *lease, 0, data, checksum_of(columns[1], data)))


def read_effect(data: bytes) -> object:
    return rows.read_entry(KEY, data + struct.pack("<I", checksum_of(KEY, data)))


def read_checkpoint(data: bytes) -> object:
    checksum = checksum_of(KEY, 1, None, data, b"")
    return rows.read_checkpoint(KEY, 1, None, data + struct.pack("<I", checksum), b"", b"", b"")


def read_segment(data: bytes) -> object:
    return segments.unpack(segments.seal(data, CONTEXT), CONTEXT)


def read_meta(data: bytes) -> object:
    return metadata.checkpoint_of("name", msgspec.structs.replace(_ROW, meta=data))


def read_skeleton(data: bytes) -> object:
    return load.read_skeleton(msgspec.structs.replace(_ROW, skeleton=data))


def read_text(data: bytes) -> object:
    return jsontext.from_text(data), jsontext.from_texts([data, b"1"])


_SEALED_RUN = sealed.seal_run(
    msgspec.structs.replace(_RUN, progress=None), sealed.ThreadKey(b"key", "thread"), SEAL, None
)
_SEALED_EFFECT = sealed.ENTRY.seal(_EFFECT, SEAL, topic=None)


def read_sealed(data: bytes) -> object:
    return sealed.open_run(
        msgspec.structs.replace(_SEALED_RUN, sealed=SEAL.seal(data, sealed.RUN.place(_SEALED_RUN))), SEAL
    )


def read_sealed_entry(data: bytes) -> object:
    place = sealed.ENTRY.place(_SEALED_EFFECT)
    return sealed.ENTRY.open(msgspec.structs.replace(_SEALED_EFFECT, sealed=SEAL.seal(data, place)), SEAL)


def read_sealed_checkpoint(data: bytes) -> object:
    row = msgspec.structs.replace(_ROW, meta=SEAL.seal(data, sealed.META.place(_ROW)))
    return sealed.open_checkpoint(row, SEAL)


def open_sealed(data: bytes) -> object:
    return SEAL.open(data, b"place")


def read_line(data: bytes) -> object:
    return lines.replayed(data)


def read_effect_line(data: bytes) -> object:
    return jsonl.read_entry(data)


def read_run_line(data: bytes) -> object:
    line = lines.replayed(data)
    return jsonl.read_run(line) if isinstance(line, lines.RunLine) else None


def _head() -> bytes:
    return rows.store_checkpoint(_ROW).head


def _line() -> bytes:
    row = msgspec.structs.replace(_ROW, meta=_META, skeleton=b"\x90")
    return _json(jsonl.show_checkpoint(row))


def _opened_run() -> bytes:
    return SEAL.open(_SEALED_RUN.sealed, sealed.RUN.place(_SEALED_RUN))


def _opened_entry() -> bytes:
    return SEAL.open(_SEALED_EFFECT.sealed, sealed.ENTRY.place(_SEALED_EFFECT))


def _json(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record)


DECODERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "run": (read_run, rows.packed(_RUN)),
    "effect": (read_effect, rows.packed(_EFFECT)),
    "checkpoint": (read_checkpoint, _head()),
    "segment": (read_segment, _SEGMENT),
    "meta": (read_meta, _META),
    "skeleton": (read_skeleton, msgspec.msgpack.encode((1, (1, 1), ((16, 0, 1),), 10, b"\xd4\x40\xc0"))),
    "packed": (msgpack.decode, _VALUE),
    "text": (read_text, jsontext.to_text(_VALUE)),
    "sealed run": (read_sealed, _opened_run()),
    "sealed entry": (read_sealed_entry, _opened_entry()),
    "sealed checkpoint": (read_sealed_checkpoint, b"\0" + msgspec.msgpack.encode(("thread", "label", _META))),
    "seal": (open_sealed, SEAL.seal(b"plain" * 100, b"place")),
    "line": (read_line, _line()),
    "effect line": (read_effect_line, _json(jsonl.show_entry(_EFFECT))),
    "run line": (read_run_line, _json(jsonl.show_run(_RUN))),
}


def attempt(seed: int) -> None:
    """One forged record for one decoder. Whatever it raises is a defect."""
    rng = random.Random(seed)
    name = rng.choice(list(DECODERS))
    _, good = DECODERS[name]
    data = forged(name, good, rng)
    for _ in range(rng.choice((0, 0, 1, 2))):
        data = forged(name, data, rng)
    decode(name, data)


def forged(name: str, data: bytes, rng: random.Random) -> bytes:
    if name in ("run", "effect", "sealed run", "sealed entry", "sealed checkpoint"):
        return rng.choice((b"\0", b"\0", b"\1", b"\2")) + forged_bytes(data[1:], rng)
    if name == "segment" and rng.random() < 0.8:
        length = int.from_bytes(data[2:6], "little")
        header = forged_bytes(data[6 : 6 + length], rng)
        return data[:2] + len(header).to_bytes(4, "little") + header + data[6 + length :]
    if name in ("text", "line", "effect line", "run line") and rng.random() < 0.8:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
            return msgspec.json.encode(forged_value(msgspec.json.decode(data), rng))
    return forged_bytes(data, rng)


def decode(name: str, data: bytes) -> Any:
    """What a decoder makes of bytes; None where it refuses them as it should."""
    try:
        return DECODERS[name][0](data)
    except HoldfastError as error:
        str(error)
        return None


def kept() -> list[tuple[str, bytes]]:
    """Records that were once more than an error: the decoder, and the bytes."""
    found = msgspec.json.decode((CORPUS / "records.json").read_bytes(), type=list[tuple[str, str, str]])
    return [(name, bytes.fromhex(data)) for name, data, _ in found]
