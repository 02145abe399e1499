"""The web UI's actions in the audit log: who, what and when. The web UI itself cannot change the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.handle import Holdfast
from holdfast.threads.audit import ACTIONS, record_action

_KEPT: Final = ("thread", "id", "name", "effect", "outcome", "keep_last")


def record(hf: Holdfast, who: str, action: str, form: Mapping[str, str], failed: HoldfastError | None = None) -> None:
    """Record who did what. Answers and results are not recorded here; the action stores them.

    As `record_action`, which raises if the action must not be carried out.
    """
    details = {name: form[name] for name in _KEPT if name in form}
    if failed is not None:
        details["failed"] = type(failed).__name__
    record_action(hf.context, who, action, details, agent="holdfast ui")


def require_not_the_record(*names: str | None) -> None:
    """Raise InvalidArgument if one of the threads is the audit log: a user could act and then remove the evidence."""
    if ACTIONS in names:
        raise InvalidArgument(f"{ACTIONS!r} is the audit log of the web UI, which cannot change it; nothing was done")
