"""The person who settles calls in doubt: looks in the ledger whether a call happened, and answers."""

from __future__ import annotations

import time

import holdfast
from examples.fleet.agent import TIMEOUT
from examples.fleet.ledger import Ledger
from examples.fleet.orders import Call
from holdfast import Happened, Holdfast, NotDone


class Person:
    """Answers every question, after a delay in which a call in transit must have arrived."""

    def __init__(self, hf: Holdfast, ledger: Ledger) -> None:
        self._hf = hf
        self._ledger = ledger
        self._seen: dict[tuple[str, int], float] = {}

    def look(self) -> None:
        for question in list(self._hf.waiting()):
            asked = (question.thread, question.effect)
            # The worker may only be presumed dead, and its call may not have arrived yet.
            if time.monotonic() - self._seen.setdefault(asked, time.monotonic()) < TIMEOUT:
                continue
            call = Call("post", question.payload["what"]).name
            happened = self._ledger.happened(question.thread, call)
            self._ledger.write(question.thread, "looked", call, text="happened" if happened else "not done")
            try:
                self._hf.settle(question.thread, question.effect, Happened("posted") if happened else NotDone())
            except holdfast.Conflict:
                continue  # settled meanwhile, or running again; it asks again if still in doubt
