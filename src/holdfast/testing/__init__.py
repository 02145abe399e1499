"""Tools for testing what is built on Holdfast, and for those who write a store of their own. Needs pytest."""

import pytest

# Before the import, or a failing assert of the suite would say nothing of the values it compared.
pytest.register_assert_rewrite("holdfast.testing.contract")

from holdfast.testing.contract import StoreContract  # noqa: E402

__all__ = ["StoreContract"]
