"""What a serde makes of a value, as plain data that Holdfast stores, and back.

A serde gives bytes, in which a conversation of a thousand messages is one lump. As plain data each message is a value
of its own: stored once, compared, shown. So the msgpack that LangGraph's serializer writes is taken apart (see
`trees`), and what any other serde gives is kept whole. Nothing is imported or called for that; building objects is the
serde's part, on the way back.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.adapters.langgraph import trees
from holdfast.adapters.langgraph.allowing import load
from holdfast.adapters.langgraph.finding import place, surrogate
from holdfast.adapters.langgraph.rebuilding import check_loaded, check_saved
from holdfast.adapters.langgraph.trees import Writer, damaged, is_object, read, tree_or_whole, typed_parts, whole
from holdfast.codec.msgpack import deeper_than
from holdfast.codec.storable import MAX_DEPTH, type_name
from holdfast.errors import HoldfastError, Unsupported

EXT: Final = trees.EXT
PAYLOAD: Final = trees.PAYLOAD
"""The two keys of what stands for an object in plain data."""

_HOLDING: Final = frozenset(range(256))
"""Every extension may hold values."""

_REFUSALS: Final = (TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""How a serde says that it cannot save a value."""


def splits(serde: SerializerProtocol) -> bool:
    """Whether a list is, to this serde, nothing but its items: `to_plain` of it gives the list of theirs.

    (A bytearray is given back as one if it stands alone, and as bytes within a list; `from_plain` reads both.)
    """
    kind = type(serde)
    return (
        isinstance(serde, JsonPlusSerializer)
        and kind.dumps_typed is JsonPlusSerializer.dumps_typed
        and kind.loads_typed is JsonPlusSerializer.loads_typed
        and not serde.pickle_fallback
    )


def to_plain(serde: SerializerProtocol, value: Any, path: str = "$") -> Any:
    """What the serde makes of `value`, as plain data. `path` is that of the value, for errors.

    `Unsupported`, with the path, if the serde refuses it, or would give something else back without a word: a type
    that is not allowed or cannot be rebuilt, a text that is no Unicode. A serde that is not LangGraph's own can only be
    asked to load what it saved.
    """
    if isinstance(serde, JsonPlusSerializer) and _is_known(serde):
        typ, data = _dump(serde, value, path)
        return _checked(serde, value, data, path) if typ == "msgpack" else whole(typ, data)
    checking = _checking(serde, path)
    typ, data = _dump(checking or serde, value, path)
    if checking is None:
        try:
            load(serde, typ, data, path)
        except _REFUSALS as error:
            if isinstance(error, HoldfastError):
                raise
            raise Unsupported(path, "the serde cannot load what it saved of this value") from error
    return tree_or_whole(typ, data)


def from_plain(serde: SerializerProtocol, plain: Any, path: str = "$") -> Any:
    """The value that the serde gives for what `to_plain` made: new, sharing nothing with `plain`.

    `Unsupported` if there is a type in it that is not allowed, or that cannot be rebuilt any more. `Damaged` if it is
    not what `to_plain` gives, or the serde cannot read it.
    """
    if plain is None:
        return _load(serde, "null", b"", path)
    if type(plain) is bytes:
        return _load(serde, "bytes", plain, path)
    if type(plain) is dict and plain.get(EXT) == trees.TYPED:
        typ, data = typed_parts(plain)
        if typ == "msgpack" and deeper_than(data, MAX_DEPTH, _HOLDING):
            raise damaged("it is nested too deeply")
        return _load(_checking(serde, path) or serde, typ, data, path)
    writer = Writer()
    try:
        data = writer.pack(plain, MAX_DEPTH)
    except (TypeError, RecursionError) as error:
        raise damaged("it holds what no serde gives") from error
    value = _load(serde, "msgpack", data, path)
    if writer.built and isinstance(serde, JsonPlusSerializer) and _is_known(serde):
        check_loaded(serde, value, writer.built, path, whole=is_object(plain))
    return value


def _load(serde: SerializerProtocol, typ: str, data: bytes, path: str) -> Any:
    try:
        return load(serde, typ, data, path)
    except HoldfastError:
        raise
    except NotImplementedError as error:
        raise Unsupported(path, "was saved by another serde, in a form that this one does not know") from error
    except Exception as error:  # a serde is anybody's code, and stored data may be anything
        raise damaged("the serde cannot read it; another one saved it, or with another key, or it changed") from error


# -- the serdes -------------------------------------------------------------------------------------------------------


def _is_known(serde: JsonPlusSerializer) -> bool:
    """Whether this is LangGraph's serializer as it comes, so that what it stores can be told from the bytes."""
    kind = type(serde)
    return (
        kind.dumps_typed is JsonPlusSerializer.dumps_typed
        and kind.loads_typed is JsonPlusSerializer.loads_typed
        and not getattr(serde, "_custom_unpack_ext_hook", False)
    )


def _checking(serde: SerializerProtocol, path: str) -> SerializerProtocol | None:
    """A serde that does the same and refuses what this module refuses. None if it cannot be looked into."""
    if isinstance(serde, EncryptedSerializer):
        within = serde.serde
        if not isinstance(within, JsonPlusSerializer) or not _is_known(within):
            return None
        clone = copy.copy(serde)
        clone.serde = _Checking(within, path)
        return clone
    return _Checking(serde, path) if isinstance(serde, JsonPlusSerializer) and _is_known(serde) else None


class _Checking(SerializerProtocol):
    """LangGraph's serializer inside of another serde: the only place where its bytes can be seen."""

    def __init__(self, serde: JsonPlusSerializer, path: str) -> None:
        self._serde = serde
        self._path = path

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        typ, data = _dump(self._serde, obj, self._path)
        if typ == "msgpack":
            _checked(self._serde, obj, data, self._path)
        return typ, data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        typ, stored = data
        value = load(self._serde, typ, stored, self._path)
        if typ == "msgpack":
            tree, built = read(stored)
            check_loaded(self._serde, value, built, self._path, whole=is_object(tree))
        return value


def _dump(serde: SerializerProtocol, value: Any, path: str) -> tuple[str, bytes]:
    try:
        return serde.dumps_typed(value)
    except HoldfastError:
        raise
    except _REFUSALS as error:
        found = place(value, lambda part: _refused(serde, part) is not None, path) or (path, value)
        reason = _refused(serde, found[1]) or error
        # What another serde says may quote the value.
        said = f": {reason}" if isinstance(serde, JsonPlusSerializer) else ""
        raise Unsupported(found[0], f"type {type_name(type(found[1]))} is refused by the serde{said}") from error


def _refused(serde: SerializerProtocol, value: Any) -> Exception | None:
    try:
        serde.dumps_typed(value)
    except _REFUSALS as error:
        return error
    return None


def _checked(serde: JsonPlusSerializer, value: Any, data: bytes, path: str) -> Any:
    """The tree of what the serializer made of `value`, when all of it comes back."""
    # The serializer puts a question mark for what it cannot write.
    where = surrogate(value, path) if b"?" in data else None
    if where is not None:
        raise Unsupported(where, "this text is no Unicode (half of a surrogate pair) and cannot be saved; replace it")
    try:
        tree, built = read(data)
    except RecursionError as error:
        raise Unsupported(path, "objects are nested too deeply; save a flatter value") from error
    if built:
        check_saved(serde, value, data, built, path)
    return tree
