"""What a type has no place for: fields of a stored state that would be dropped when it is loaded by that type.

msgspec and pydantic pass over what they do not know, as is right for messages from outside. A state that is loaded so,
changed and saved has lost something without a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from holdfast.codec.check import LEAVES, key_step
from holdfast.codec.fields import attributes, has_fields, is_pydantic

_BEFORE: Final = ("before", "wrap", "plain")


def left_over(plain: Any, state: Any, path: str = "$") -> str | None:
    """The path of the first stored field that `state`, made of `plain`, does not have; None if it has them all."""
    kind = type(state)
    if kind in LEAVES:
        return None
    if has_fields(kind):
        return _of_fields(plain, state, path)
    if type(plain) is dict and issubclass(kind, dict):
        if len(plain) > len(state):
            return path + key_step(next(key for key in plain if key not in state))
        return _first((item, state[key], path + key_step(key)) for key, item in plain.items() if key in state)
    if isinstance(plain, list | tuple) and issubclass(kind, list | tuple):
        return _first((item, state[at], f"{path}[{at}]") for at, item in enumerate(plain) if at < len(state))
    return None


def _of_fields(plain: Any, state: Any, path: str) -> str | None:
    kind = type(state)
    if is_pydantic(kind):
        if getattr(kind, "__pydantic_root_model__", False):
            return left_over(plain, state.root, path)
        if _decides_itself(kind):
            return None
    if isinstance(state, msgspec.Struct):
        tag = state.__struct_config__.tag_field
        fields = dict(zip(state.__struct_encode_fields__, msgspec.structs.astuple(state), strict=True))
        fields = fields if tag is None else {tag: None, **fields}
        if isinstance(plain, list | tuple):  # array_like: its fields are told by their places
            if len(plain) > len(fields):
                return f"{path}[{len(fields)}]"
            values = zip(plain, fields.values(), strict=False)
            return _first((item, value, f"{path}[{at}]") for at, (item, value) in enumerate(values))
    else:
        fields = attributes(state)
    if type(plain) is not dict:
        return None
    unknown = next((key for key in plain if key not in fields), None)
    if unknown is not None:
        return path + key_step(unknown)
    return _first((item, fields[key], path + key_step(key)) for key, item in plain.items())


def _decides_itself(model: Any) -> bool:
    """Whether a pydantic model looks at what it is given before its fields do: it may know older ones."""
    found = model.__pydantic_decorators__
    validators = (*found.model_validators.values(), *found.field_validators.values())
    return any(validator.info.mode in _BEFORE for validator in validators)


def _first(pairs: Iterable[tuple[Any, Any, str]]) -> str | None:
    for item, value, path in pairs:
        found = left_over(item, value, path)
        if found is not None:
            return found
    return None
