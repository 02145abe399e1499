"""A class that keeps data of a framework in a store, and closes the store if it has opened it."""

from __future__ import annotations

import os
from typing import Final

from holdfast.aio.handle import AsyncHoldfast
from holdfast.handle import Holdfast
from holdfast.handle import open as open_handle
from holdfast.stores.contract import Store

StoreLike = Holdfast | AsyncHoldfast | Store | str | os.PathLike[str]


class StoreOwner:
    """`store` is what `holdfast.open` takes, or an open handle, which stays open."""

    def __init__(self, store: StoreLike) -> None:
        given = store.sync if isinstance(store, AsyncHoldfast) else store
        self._is_owned: Final = not isinstance(given, Holdfast)
        self._hf: Final = given if isinstance(given, Holdfast) else open_handle(given)

    def close(self) -> None:
        """Close the store, if it was opened here."""
        if self._is_owned:
            self._hf.close()
