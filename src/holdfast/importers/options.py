"""The options of an import. An option that a format does not support is rejected."""

from __future__ import annotations

import msgspec

from holdfast.errors import InvalidArgument
from holdfast.importers.foreign_file import FILE_MAX


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options.

    `accept_mismatch`: import checkpoints whose checksum does not match, and report them. `max_file_bytes`: the limit
    for a file, or for a line if files are read line by line; anything larger is skipped.
    """

    accept_mismatch: bool = False
    max_file_bytes: int = FILE_MAX

    def __post_init__(self) -> None:
        if type(self.accept_mismatch) is not bool:
            raise InvalidArgument("accept_mismatch must be True or False")
        if type(self.max_file_bytes) is not int or self.max_file_bytes < 1:
            raise InvalidArgument("max_file_bytes must be a whole number, 1 or more")

    def chosen(self) -> tuple[str, ...]:
        """The names of the options that do not have their default value."""
        fields = msgspec.structs.fields(self)
        return tuple(field.name for field in fields if getattr(self, field.name) != field.default)
