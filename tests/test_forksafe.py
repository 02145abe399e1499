"""Objects are renewed in a forked child, and only there, as long as they exist."""

from __future__ import annotations

import os

from holdfast import forksafe


class Thing:
    def __init__(self) -> None:
        self.renewed = 0

    def renew(self) -> None:
        self.renewed += 1


def test_things_are_renewed_in_the_child() -> None:
    thing = Thing()
    forksafe.renew_in_child(thing)
    forksafe.renew_in_child(Thing())  # freed at once
    child = os.fork()
    if not child:
        os._exit(thing.renewed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert thing.renewed == 0
