"""What makes system calls fail: a lab that has not got it fails, and does not pass without having tried anything."""

from __future__ import annotations

import pytest

from tests.crash.tracing import needed


def test_without_strace_the_lab_fails_and_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pytest.fail.Exception, match="apt-get install strace"):
        needed()
