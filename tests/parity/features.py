"""What the earlier systems have, by system: id and, in our words, what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.parity.features_ares import ARES
from tests.parity.features_continuum import CONTINUUM
from tests.parity.features_cortex import CORTEX
from tests.parity.features_smooth import SMOOTH

FEATURES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "ares": ARES,
    "smooth": SMOOTH,
    "continuum": CONTINUUM,
    "cortex": CORTEX,
}

TITLES: Final[Mapping[str, str]] = {
    "ares": "ares: `CheckpointManager`, its successor and its neighbours",
    "smooth": "Smooth: `CheckpointStore`, `CheckpointStrategy`, `Conversation`",
    "continuum": "Continuum: `CheckpointWriter`, crash and session recovery",
    "cortex": "rust-ai-agents (cortexai): `CheckpointManager`, its builder and its neighbours",
}
