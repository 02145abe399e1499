"""Convert values to plain data with a serde, and back.

A serde returns bytes, in which a conversation of a thousand messages is one block. In plain data each message is a
separate value, which can be stored once, compared and shown. So the msgpack of LangGraph's serializer is parsed (see
`trees`); the bytes of any other serde are kept whole. Parsing imports and calls nothing; only the serde builds objects,
when it loads them.
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
"""The two keys of a dict that represents an object in plain data."""

_HOLDING: Final = frozenset(range(256))
"""Every extension may contain values."""

_REFUSALS: Final = (TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""The errors of a serde that cannot save a value."""


def splits(serde: SerializerProtocol) -> bool:
    """Whether `to_plain` of a list is the list of `to_plain` of its items, for this serde.

    A bytearray is an exception: within a list it is stored as bytes. `from_plain` reads both forms.
    """
    kind = type(serde)
    return (
        isinstance(serde, JsonPlusSerializer)
        and kind.dumps_typed is JsonPlusSerializer.dumps_typed
        and kind.loads_typed is JsonPlusSerializer.loads_typed
        and not serde.pickle_fallback
    )


def to_plain(serde: SerializerProtocol, value: Any, path: str = "$") -> Any:
    """Convert a value to plain data with the serde. `path` is the path of the value, for errors.

    `Unsupported`, with the path, if the serde rejects the value, or would silently load something else: a type that is
    not allowed or cannot be rebuilt, or a string that is not valid Unicode. With a serde other than LangGraph's own
    the only check is that it can load what it saved.
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
            raise Unsupported(path, "the serde cannot load what it saved for this value") from error
    return tree_or_whole(typ, data)


def from_plain(serde: SerializerProtocol, plain: Any, path: str = "$") -> Any:
    """The inverse of `to_plain`. The value is new and shares nothing with `plain`.

    `Unsupported` if it contains a type that is not allowed or can no longer be rebuilt. `Damaged` if `plain` does not
    have the form that `to_plain` returns, or the serde cannot read it.
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
        raise damaged("it contains data that no serde writes") from error
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
        raise Unsupported(path, "the value was saved by another serde, in a form that this one cannot read") from error
    except Exception as error:  # a serde may raise anything
        raise damaged("the serde cannot read it: another serde or key saved it, or it was changed") from error


# -- the serdes -------------------------------------------------------------------------------------------------------


def _is_known(serde: JsonPlusSerializer) -> bool:
    """Whether this is LangGraph's own serializer without changes, whose bytes can be parsed."""
    kind = type(serde)
    return (
        kind.dumps_typed is JsonPlusSerializer.dumps_typed
        and kind.loads_typed is JsonPlusSerializer.loads_typed
        and not getattr(serde, "_custom_unpack_ext_hook", False)
    )


def _checking(serde: SerializerProtocol, path: str) -> SerializerProtocol | None:
    """A serde that also makes the checks of this module. None if that is not possible for `serde`."""
    if isinstance(serde, EncryptedSerializer):
        within = serde.serde
        if not isinstance(within, JsonPlusSerializer) or not _is_known(within):
            return None
        clone = copy.copy(serde)
        clone.serde = _Checking(within, path)
        return clone
    return _Checking(serde, path) if isinstance(serde, JsonPlusSerializer) and _is_known(serde) else None


class _Checking(SerializerProtocol):
    """LangGraph's serializer with checks. Inside an encrypting serde, its bytes can be seen only here."""

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
        # The message of another serde may quote the value.
        said = f": {reason}" if isinstance(serde, JsonPlusSerializer) else ""
        raise Unsupported(found[0], f"the serde rejects type {type_name(type(found[1]))}{said}") from error


def _refused(serde: SerializerProtocol, value: Any) -> Exception | None:
    try:
        serde.dumps_typed(value)
    except _REFUSALS as error:
        return error
    return None


def _checked(serde: JsonPlusSerializer, value: Any, data: bytes, path: str) -> Any:
    """Parse the bytes of `value`, and check that all of it can be loaded again."""
    # The serializer writes a question mark for a lone surrogate.
    where = surrogate(value, path) if b"?" in data else None
    if where is not None:
        raise Unsupported(where, "this string is not valid Unicode (a lone surrogate) and cannot be saved; replace it")
    try:
        tree, built = read(data)
    except RecursionError as error:
        raise Unsupported(path, "objects are nested too deeply; save a flatter value") from error
    if built:
        check_saved(serde, value, data, built, path)
    return tree
