"""The time a checkpoint took to become durable."""

from __future__ import annotations

from holdfast.errors import Damaged
from holdfast.handle import Holdfast
from holdfast.ids import to_text
from holdfast.inspect.nearest import existing
from holdfast.threads.metadata import decode
from holdfast.threads.scan import checkpoint_at
from holdfast.types import Checkpoint


def seconds_to_write(hf: Holdfast, checkpoint: Checkpoint) -> float | None:
    """Return the time from the call of `save` to its return. None if it was not recorded.

    The time is known only after the write, so the next checkpoint records it, if the same handle wrote both in a row.
    The newest checkpoint therefore has none.
    """
    thread = existing(hf, checkpoint.thread).position.thread
    try:
        after = checkpoint_at(hf.context.store, thread, checkpoint.seq + 1)
        if after is None or after.deleted:
            return None
        meta = decode(after)
    except Damaged:
        return None
    if meta.parent is None or to_text(meta.parent) != checkpoint.id or not meta.parent_write_micros:
        return None
    return meta.parent_write_micros / 1_000_000
