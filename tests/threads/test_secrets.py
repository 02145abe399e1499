"""Secrets in typed states: refused, or stored redacted."""

from __future__ import annotations

from pathlib import Path

import pydantic
import pytest

import holdfast
from holdfast.redaction import api_keys


class Account(pydantic.BaseModel):
    name: str
    password: pydantic.SecretStr


ANN = Account(name="ann", password=pydantic.SecretStr("s3cret"))


def test_a_secret_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "a.db") as hf:
        thread = hf.thread("ann", type=Account)
        with pytest.raises(holdfast.Unsupported, match=r"^\$\.password: a pydantic\.types\.SecretStr is a secret"):
            thread.save(ANN)
        assert thread.latest() is None


def test_a_secret_is_stored_redacted_if_the_store_redacts(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "a.db", redact=api_keys) as hf:
        thread = hf.thread("ann", type=Account)
        thread.save(ANN)
        assert ANN.password.get_secret_value() == "s3cret"
        found = thread.latest()
        assert found is not None
        assert found.state == Account(name="ann", password=pydantic.SecretStr("[redacted]"))
    assert not any(b"s3cret" in path.read_bytes() for path in tmp_path.iterdir())
