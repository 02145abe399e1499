"""Planned failures, from a seed: workers are killed, vanish or pause, and the server crashes."""

from __future__ import annotations

import time
from random import Random
from typing import Final, Literal, NamedTuple

import msgspec

from examples.fleet.server import Server
from examples.fleet.workers import Fleet

Kind = Literal["killed", "vanished", "paused", "server restarted"]
RESTARTED: Final[Kind] = "server restarted"
KINDS: Final[tuple[Kind, ...]] = ("killed", "vanished", "paused", RESTARTED)
TURNS: Final[tuple[Kind, ...]] = ("killed", "killed", "vanished", "paused")  # kinds of failures of workers
QUIET: Final = 0.8  # longest pause after a failure, in seconds


class Crash(msgspec.Struct, frozen=True):
    """A failure at the time `at`. `pid` is the worker's, 0 for the server."""

    kind: Kind
    at: float
    pid: int = 0


class _Deed(NamedTuple):
    """A failure that is due when a given part of the work is done."""

    moment: float
    kind: Kind


class Chaos:
    """Carries out the plan by how much of the work is done, so that a slow machine has as many failures."""

    def __init__(self, seed: int, fleet: Fleet, server: Server | None, *, kills: int, restarts: int, lease: float):
        self._random = Random(f"chaos {seed}")  # noqa: S311 - nothing secret
        self._fleet = fleet
        self._server = server
        self._lease = lease
        self._next_at = 0.0
        self.crashes: list[Crash] = []
        plan = [_Deed(self._random.uniform(0.05, 0.9), TURNS[number % len(TURNS)]) for number in range(kills)]
        moments = [0.1 + 0.8 * (number + self._random.random()) / restarts for number in range(restarts)]
        plan += [_Deed(moment, RESTARTED) for moment in moments if server is not None]
        self._plan = sorted(plan, reverse=True)

    def look(self, done: float) -> None:
        """Cause the next failure if it is due. `done` is the completed part of the work, from 0 to 1."""
        if not self._plan or done < self._plan[-1].moment or time.monotonic() < self._next_at:
            return
        if not self._fleet.workers:
            return  # all of them are stopped
        kind = self._plan.pop().kind
        self._next_at = time.monotonic() + self._random.uniform(0.0, QUIET)
        if kind == RESTARTED:
            self._restart()
            return
        worker = self._random.choice(self._fleet.workers)
        at = time.time()
        if kind == "killed":
            self._fleet.kill(worker)
        elif kind == "vanished":
            self._fleet.vanish(worker, 2 * self._lease)
        else:
            # Other workers may have its runs by then. They believe "not done" only after the `probe_after` of the tool,
            # so the worker can finish it. A longer pause could not be made safe.
            self._fleet.pause(worker, self._lease + 0.3)
        self.crashes.append(Crash(kind, at, worker.pid))
        print(f"  worker {worker.pid} {kind}", flush=True)

    def _restart(self) -> None:
        if self._server is not None:
            self._server.crash()
            self.crashes.append(Crash(RESTARTED, time.time()))
            # Sometimes long enough for leases to end while their workers live.
            time.sleep(self._random.uniform(0.0, 1.5 * self._lease))
            self._server.start()
            print(f"  server restarted, down for {time.time() - self.crashes[-1].at:.1f} s", flush=True)
