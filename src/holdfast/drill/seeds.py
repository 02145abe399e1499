"""Processes with another hash seed, in which killed runs are resumed.

Each is started once per drill. It loads the agent by its name, as `multiprocessing` does, and forks a process for each
run that is to be resumed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from multiprocessing import Pipe, spawn
from multiprocessing.connection import Connection
from typing import Any

from holdfast.drill.child import Task, forked, prepare
from holdfast.drill.spec import Drill
from holdfast.errors import HoldfastError

_LOADING = "HOLDFAST_DRILL_LOADS"
_SEEDS = (11, 22, 33)  # several, because a small set may have the same order with two seeds
_CODE = "import sys; from holdfast.drill.seeds import serve; serve(int(sys.argv[1]))"


class Unloadable(HoldfastError):
    """The agent cannot be loaded in another process."""


def require_loaded() -> None:
    """HoldfastError in a process that only loads the agent: its module starts a drill when it is imported."""
    if os.environ.get(_LOADING):
        raise HoldfastError("the module of the agent starts a drill when it is imported; guard it by __name__")


class Seeds:
    """The processes of a drill that have other hash seeds than this one."""

    def __init__(self, drill: Drill) -> None:
        try:
            self._pickled = pickle.dumps(drill)
        except Exception as error:
            raise Unloadable(f"it cannot be found by its name: {type(error).__name__}: {error}") from error
        seeds = [seed for seed in _SEEDS if str(seed) != os.environ.get("PYTHONHASHSEED")]
        self._servers: list[_Server | None] = [None] * len(seeds)
        self._seeds = seeds

    def live(self, task: Task, number: int) -> int | None:
        """Run a process with the seed of this number; return its wait status, or None if it had to be killed."""
        at = number % len(self._seeds)
        server = self._servers[at] or _Server(self._pickled, self._seeds[at])
        self._servers[at] = server
        return server.live(task)

    def close(self) -> None:
        for server in self._servers:
            if server is not None:
                server.close()
        self._servers = [None] * len(self._seeds)


class _Server:
    def __init__(self, pickled: bytes, seed: int) -> None:
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), _LOADING: "1"}
        self._pipe, there = Pipe()
        with there:
            self._process = subprocess.Popen(  # noqa: S603 - this program
                [sys.executable, "-c", _CODE, str(there.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # the agent's modules may print
                stderr=subprocess.DEVNULL,
                env=environment,
                pass_fds=[there.fileno()],
            )
        try:
            self._pipe.send((_preparation(pickled), pickled))
            problem: str | None = self._pipe.recv()
        except (OSError, EOFError) as error:
            self.close()
            raise Unloadable(f"the process that loads it ended: {error}") from error
        if problem is not None:
            self.close()
            raise Unloadable(problem)

    def live(self, task: Task) -> int | None:
        self._pipe.send(task)
        status: int | None = self._pipe.recv()
        return status

    def close(self) -> None:
        """End the process. It ends when it can read no more."""
        self._pipe.close()
        self._process.wait()


def _preparation(pickled: bytes) -> dict[str, Any]:
    """The instructions for `multiprocessing` to make modules importable as here; the script only if it is needed."""
    here: dict[str, Any] = {"sys_path": [path or os.getcwd() for path in sys.path], "dir": os.getcwd()}
    if b"__main__" not in pickled:
        return here
    main = sys.modules["__main__"]
    name = getattr(main.__spec__, "name", None)
    if name is not None:
        return {**here, "init_main_from_name": name}
    path = getattr(main, "__file__", None)
    return here if path is None else {**here, "init_main_from_path": os.path.abspath(path)}


def serve(number: int) -> None:
    """Act as a process with another hash seed: load the agent, then fork a process for each task.

    `number` is the file descriptor of the pipe to the process of the drill.
    """
    os.set_inheritable(number, False)
    pipe: Connection[Any, Any] = Connection(number)
    problem, drill = _loaded(*pipe.recv())
    os.environ.pop(_LOADING, None)
    prepare()
    pipe.send(problem)
    while drill is not None:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(forked(drill, task))


def _loaded(preparation: dict[str, Any], pickled: bytes) -> tuple[str | None, Drill | None]:
    try:
        spawn.prepare(preparation)
        drill: Drill = pickle.loads(pickled)  # noqa: S301 - from the process that started this one
    except BaseException as error:  # noqa: BLE001 - the module of the agent may raise anything
        return f"it cannot be loaded: {type(error).__name__}: {error}", None
    return None, drill
