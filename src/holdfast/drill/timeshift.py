"""A process of the drill at a later time of day: what the agent reads from the wall clock is set forward.

A run that is resumed is resumed later. What an agent makes of the time, such as a key, must not depend on that.
"""

from __future__ import annotations

import datetime as dt
import functools
import sys
import sysconfig
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import holdfast

STEP_SECONDS = 90_061  # a day, an hour, a minute and a second: every part of a date differs
_OTHERS = tuple(
    str(path)
    for path in (
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        Path(holdfast.__file__).parent,
    )
)


class _Like(type):
    """The class of a replacement: its instances are those of the class that it replaces."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__bases__[0])


def set_forward(seconds: int) -> None:
    """From now on, show the agent's code a later time. Times in the store are later too; its leases are not."""
    if not seconds:
        return
    functions = _functions(seconds)
    for name, function in functions.items():
        setattr(time, name, function)
    module = _datetime(seconds)
    later = {**functions, "module": module, "datetime": module.datetime, "date": module.date}
    for each, name, clock in agents_clocks():
        setattr(each, name, later[clock])


@functools.cache
def agents_clocks() -> list[tuple[ModuleType, str, str]]:
    """The names in the agent's modules that tell the time: module, name, and key of its replacement.

    The agent's modules are neither of Python, nor installed, nor of Holdfast. Call it before forking, so that it is
    done once.
    """
    clocks = {id(getattr(time, name)): name for name in _functions(0)}
    clocks |= {id(dt): "module", id(dt.datetime): "datetime", id(dt.date): "date"}
    files = [(module, getattr(module, "__file__", None)) for module in list(sys.modules.values())]
    return [
        (module, name, clocks[id(value)])
        for module, file in files
        if isinstance(file, str) and not file.startswith(_OTHERS)
        for name, value in list(vars(module).items())
        if id(value) in clocks
    ]


def _functions(seconds: int) -> dict[str, Any]:
    """The functions of `time` that tell the time."""
    real, real_ns = time.time, time.time_ns
    local, universal, formatted = time.localtime, time.gmtime, time.strftime

    def localtime(at: float | None = None) -> time.struct_time:
        return local(real() + seconds if at is None else at)

    def gmtime(at: float | None = None) -> time.struct_time:
        return universal(real() + seconds if at is None else at)

    def strftime(how: str, *at: Any) -> str:
        return formatted(how, *(at or (localtime(),)))

    return {
        "time": lambda: real() + seconds,
        "time_ns": lambda: real_ns() + seconds * 1_000_000_000,
        "localtime": localtime,
        "gmtime": gmtime,
        "strftime": strftime,
    }


def _datetime(seconds: int) -> ModuleType:
    """The module `datetime` at a later time. Its classes make instances of the real ones."""
    moment: Any = dt.datetime
    day: Any = dt.date
    later = dt.timedelta(seconds=seconds)

    class Moment(dt.datetime, metaclass=_Like):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return moment(*args, **kwargs)

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return moment.now(tz) + later

        @classmethod
        def utcnow(cls) -> Any:
            return (moment.now(dt.UTC) + later).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return moment.now() + later

    class Day(dt.date, metaclass=_Like):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return day(*args, **kwargs)

        @classmethod
        def today(cls) -> Any:
            return (moment.now() + later).date()

    made = ModuleType("datetime")
    vars(made).update(vars(dt))
    vars(made).update(datetime=Moment, date=Day)
    return made
