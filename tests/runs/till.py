"""A till: payments that are counted, of which one may raise."""

from __future__ import annotations

import holdfast
from holdfast import ToolNotDone


class Till:
    """Payments with a card. The next one raises `fault` after it was made; the card "refused" is not charged."""

    def __init__(self, fault: BaseException | None = None) -> None:
        self.paid: list[str] = []
        self.keys: list[str] = []
        self.fault = fault
        self.pay = holdfast.tool(name="pay")(self._pay)
        self.note = holdfast.tool(effect="idempotent", name="note")(lambda: "noted")

    def _pay(self, card: str, idempotency_key: str) -> str:
        self.paid.append(card)
        self.keys.append(idempotency_key)
        if card == "refused":
            raise ToolNotDone("refused")
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        return f"receipt {len(self.paid)}"
