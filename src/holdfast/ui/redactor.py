"""Redact the user data in records before they are sent to a browser.

Names are not redacted: forms, links and commands use them, and a changed name would act on another thread.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

import msgspec

from holdfast.errors import InvalidArgument, Unsupported
from holdfast.inspect import (
    Call,
    Decision,
    InboxItem,
    ModelUse,
    PlannedCall,
    RecordedCall,
    RecoveryPlan,
    ThreadSpending,
    Work,
    WorkerProcess,
    WorkItem,
)
from holdfast.redaction import Redaction
from holdfast.types import Checkpoint, Effect, MissingValue, PendingQuestion, Progress

_FIELDS: Final[dict[type, tuple[str, ...]]] = {
    Checkpoint: ("label", "tags", "reason", "metadata", "agent", "resume_hint", "trigger", "lost", "state"),
    Effect: ("key", "arguments", "result", "error", "by"),
    Call: ("key", "error", "by"),
    PlannedCall: ("call",),
    RecoveryPlan: ("reason", "calls", "decisions", "progress"),
    Progress: ("note",),
    PendingQuestion: ("payload",),
    MissingValue: ("path",),
    Decision: ("payload", "error"),
    InboxItem: ("why", "decisions", "plan"),
    RecordedCall: ("call", "effect"),
    ThreadSpending: ("models",),
    ModelUse: ("model",),
    Work: ("workers", "queued", "waiting"),
    WorkerProcess: ("runs",),
    WorkItem: ("agent", "reason"),
}


class Redactor:
    """Applies a redaction to values and records. Raises InvalidArgument if the redaction function fails."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction

    @property
    def is_active(self) -> bool:
        """Whether a redaction function was given."""
        return self._redaction.placeholder is not None

    def value(self, value: Any) -> Any:
        """Redact a value or a record. Returns the same object if nothing changes."""
        try:
            return self._value(value)
        except Unsupported as error:
            _refuse(error)

    def text(self, text: str) -> str:
        try:
            return self._redaction.text(text)
        except Unsupported as error:
            _refuse(error)

    def message(self, text: str) -> str:
        """Redact a message that may contain stored data. It never raises, so that errors can always be shown."""
        return self._redaction.message(text)

    def _value(self, value: Any) -> Any:
        if isinstance(value, msgspec.Struct):
            # A record type that is not listed above raises KeyError, so that no field is sent unredacted.
            fields = {name: getattr(value, name) for name in _FIELDS[type(value)]}
            changed = {name: self._value(each) for name, each in fields.items()}
            if isinstance(value, Checkpoint) and value.lost:
                changed["state"] = self._lost(changed["state"])
            if all(changed[name] is each for name, each in fields.items()):
                return value
            return msgspec.structs.replace(value, **changed)
        if isinstance(value, tuple) and any(isinstance(each, msgspec.Struct) for each in value):
            return tuple(self._value(each) for each in value)
        return self._redaction.value(value)

    def _lost(self, value: Any) -> Any:
        """Redact the placeholders of lost values: they contain the keys of the path that led to them."""
        if isinstance(value, MissingValue):
            return self._value(value)
        if isinstance(value, dict):
            return {key: self._lost(each) for key, each in value.items()}
        return type(value)(map(self._lost, value)) if type(value) in (list, tuple) else value


def _refuse(error: Unsupported) -> NoReturn:
    raise InvalidArgument("the redaction function failed on this data, so it is not shown") from error
