
import holdfast
from holdfast.telemetry import instrument
from shop import shopper

guarded = holdfast.handler(guards=[holdfast.Budget(steps=20), holdfast.LoopGuard()])


def app(hf):
    instrument(hf)
    return {"shopper": guarded(shopper)}
