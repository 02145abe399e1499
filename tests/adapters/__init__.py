import pytest

pytest.register_assert_rewrite("tests.adapters.kill_contract")
