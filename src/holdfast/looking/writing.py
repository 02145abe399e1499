"""How long a checkpoint took to be durable, as the handle that wrote it measured it."""

from __future__ import annotations

from holdfast.errors import Damaged
from holdfast.handle import Holdfast
from holdfast.ids import to_text
from holdfast.looking.nearest import existing
from holdfast.threads.metadata import decode
from holdfast.types import Checkpoint


def seconds_to_write(hf: Holdfast, checkpoint: Checkpoint) -> float | None:
    """From the call of `save` to its acknowledgement. None if nobody told, as of the newest checkpoint of a thread.

    A checkpoint is written before that is known: the next one tells it, if the same handle wrote both, one after the
    other.
    """
    thread = existing(hf, checkpoint.thread).position.thread
    try:
        after = hf._session.store.checkpoint(thread, checkpoint.seq + 1)
        if after is None or after.deleted:
            return None
        meta = decode(after)
    except Damaged:
        return None
    if meta.parent is None or to_text(meta.parent) != checkpoint.id or not meta.parent_took:
        return None
    return meta.parent_took / 1_000_000
