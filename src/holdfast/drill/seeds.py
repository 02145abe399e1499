"""Processes with another hash seed, in which killed runs are resumed.

Each is started once per drill. It loads the agent by its name, as `multiprocessing` does, and forks a process for each
run that is to be resumed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from multiprocessing import spawn
from typing import IO, Any

import msgspec

from holdfast.drill.child import Task, forked, prepare
from holdfast.drill.spec import Drill
from holdfast.errors import HoldfastError

_LOADING = "HOLDFAST_DRILL_LOADS"
_SEEDS = (11, 22, 33)  # several, because a small set may have the same order with two seeds
_CODE = "from holdfast.drill.seeds import serve; serve()"


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
        self._process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-c", _CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        try:
            self._send(pickle.dumps(_preparation(pickled)))
            self._send(pickled)
            problem = msgspec.json.decode(self._receive(), type=str | None)
        except (OSError, EOFError) as error:
            self.close()
            raise Unloadable(f"the process that loads it ended: {error}") from error
        if problem is not None:
            self.close()
            raise Unloadable(problem)

    def live(self, task: Task) -> int | None:
        self._send(msgspec.json.encode(task))
        return msgspec.json.decode(self._receive(), type=int | None)

    def close(self) -> None:
        """End the process. It ends when it can read no more."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        _write(self._process.stdin, data)

    def _receive(self) -> bytes:
        assert self._process.stdout is not None
        return _read(self._process.stdout)


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


def serve() -> None:
    """Act as a process with another hash seed: load the agent, then fork a process for each task."""
    tasks, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    for number in (0, 1):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)  # the agent's modules may read and print
    problem, drill = _loaded(tasks)
    os.environ.pop(_LOADING, None)
    prepare()
    _write(answers, msgspec.json.encode(problem))
    while drill is not None:
        try:
            task = msgspec.json.decode(_read(tasks), type=Task)
        except EOFError:
            return
        _write(answers, msgspec.json.encode(forked(drill, task)))


def _loaded(tasks: IO[bytes]) -> tuple[str | None, Drill | None]:
    try:
        spawn.prepare(pickle.loads(_read(tasks)))  # noqa: S301 - from the process that started this one
        drill: Drill = pickle.loads(_read(tasks))  # noqa: S301
    except BaseException as error:  # noqa: BLE001 - the module of the agent may raise anything
        return f"it cannot be loaded: {type(error).__name__}: {error}", None
    return None, drill


def _write(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(8, "big") + data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes:
    head = pipe.read(8)
    if len(head) < 8:
        raise EOFError("no message")
    return pipe.read(int.from_bytes(head, "big"))
