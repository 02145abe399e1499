"""What whoever imports may choose. A format takes some of it; what it does not take is refused, not passed over."""

from __future__ import annotations

import msgspec

from holdfast.errors import InvalidArgument
from holdfast.importers.foreign_file import FILE_MAX


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """`accept_mismatch`: take checkpoints whose checksum does not fit, and say so. `max_file_bytes`: of one file, or of
    one line where a file is read line by line; what is larger is skipped.
    """

    accept_mismatch: bool = False
    max_file_bytes: int = FILE_MAX

    def __post_init__(self) -> None:
        if type(self.accept_mismatch) is not bool:
            raise InvalidArgument("accept_mismatch must be True or False")
        if type(self.max_file_bytes) is not int or self.max_file_bytes < 1:
            raise InvalidArgument("max_file_bytes must be a whole number, 1 or more")

    def chosen(self) -> tuple[str, ...]:
        """What is not as it is by default."""
        fields = msgspec.structs.fields(self)
        return tuple(field.name for field in fields if getattr(self, field.name) != field.default)
