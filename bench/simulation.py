"""A discrete-event simulation of many agents on one store: a bucket, or a PostgreSQL server.

Every agent makes a step at regular times: its writes follow each other. Its lease is renewed three times per lease. The
agents of a process share a handle, which makes one write at a time. The store is one of these:

* a bucket of several prefixes, each with a limit of writes per second, above which it answers 503 SlowDown; a write is
  repeated after a pause, as `Objects` does it
* a server that carries out the writes of all one after the other, at a rate
"""

from __future__ import annotations

import math
import random
from collections import deque
from heapq import heapify, heappop, heappush
from statistics import NormalDist
from typing import NamedTuple

_STEP, _RENEWAL, _FREE, _AGAIN = range(4)  # kinds of events; an event is a time and 4 * number + kind


class Latency(NamedTuple):
    """A lognormal distribution of the duration of a write, in seconds."""

    median: float
    p99: float

    def sample(self, count: int, rng: random.Random) -> list[float]:
        sigma = math.log(self.p99 / self.median) / NormalDist().inv_cdf(0.99)
        return [rng.lognormvariate(math.log(self.median), sigma) for _ in range(count)]


class Load(NamedTuple):
    """The agents and their work."""

    agents: int
    seconds: float = 10.0  # from one step to the next
    writes: int = 3  # of a step
    lease: float = 30.0
    agents_per_handle: int = 50


class Bucket(NamedTuple):
    """A bucket: its prefixes, the writes per second that each of them accepts, and the pause after a refusal."""

    latency: Latency
    prefixes: int
    limit: float = 3500.0
    pause: float = 0.1


class Server(NamedTuple):
    """A server: its commits per second, and the time that a request takes without them."""

    latency: Latency
    commits: float


class Outcome(NamedTuple):
    """The events of a simulated time. Rates are per second."""

    load: Load
    steps: float
    writes: float
    renewals: float
    refusals: float
    busiest: float  # writes to the prefix with most of them
    median: float  # seconds from the time at which a step was due until its last write
    p99: float

    @property
    def holds(self) -> bool:
        """Whether the store keeps up: 99 % of the steps end before the next is due."""
        return self.steps >= 0.98 * self.load.agents / self.load.seconds and self.p99 < self.load.seconds


def simulate(load: Load, store: Bucket | Server, *, seconds: float = 30.0, seed: int = 1) -> Outcome:
    """Simulate so many seconds. The first third is not counted."""
    return _Simulation(load, store, seconds, seed).run()


class _Simulation:
    def __init__(self, load: Load, store: Bucket | Server, seconds: float, seed: int) -> None:
        rng = random.Random(seed)
        self._load, self._end = load, seconds
        self._bucket = store if isinstance(store, Bucket) else None
        self._pace = 1 / (store.limit if isinstance(store, Bucket) else store.commits)
        self._prefixes = store.prefixes if isinstance(store, Bucket) else 1
        self._latencies = store.latency.sample(1 << 16, rng)
        every = load.lease / 3
        self._events: list[tuple[float, int]] = []
        for agent in range(load.agents):
            self._events.append((rng.random() * load.seconds, 4 * agent + _STEP))
            self._events.append((rng.random() * every, 4 * agent + _RENEWAL))
        heapify(self._events)
        handles = -(-load.agents // load.agents_per_handle)
        self._waiting: list[deque[int]] = [deque() for _ in range(handles)]
        self._current = [-1] * handles  # the write that a handle makes: 2 * agent, + 1 for a renewal
        self._due = [0.0] * load.agents  # when the step of an agent was due
        self._left = [0] * load.agents  # writes of that step
        self._next = [0.0] * self._prefixes  # when the store can carry out one more write

    def run(self) -> Outcome:
        load, events, start = self._load, self._events, self._end / 3
        took: list[float] = []
        writes, renewals, refusals = [0] * self._prefixes, 0, 0
        size, every = load.agents_per_handle, load.lease / 3
        while events:
            now, event = heappop(events)
            if now >= self._end:
                break
            number, kind = event >> 2, event & 3
            if kind == _STEP:
                self._due[number], self._left[number] = now, load.writes
                self._ask(now, number // size, 2 * number)
            elif kind == _RENEWAL:
                self._ask(now, number // size, 2 * number + 1)
            elif kind == _AGAIN:
                refusals += not self._send(now, number) and now > start
            else:
                write = self._current[number]
                agent, is_renewal = write >> 1, write & 1
                if now > start:
                    writes[agent % self._prefixes] += 1
                if is_renewal:
                    renewals += now > start
                    heappush(events, (now + every, 4 * agent + _RENEWAL))
                else:
                    self._left[agent] -= 1
                    if self._left[agent]:
                        self._waiting[number].append(write)
                    else:
                        if now > start:
                            took.append(now - self._due[agent])
                        heappush(events, (max(now, self._due[agent] + load.seconds), 4 * agent + _STEP))
                self._current[number] = -1
                if self._waiting[number]:
                    self._current[number] = self._waiting[number].popleft()
                    refusals += not self._send(now, number) and now > start
        took.sort()
        counted = self._end - start
        return Outcome(
            load=load,
            steps=len(took) / counted,
            writes=sum(writes) / counted,
            renewals=renewals / counted,
            refusals=refusals / counted,
            busiest=max(writes) / counted,
            median=took[len(took) // 2] if took else math.inf,
            p99=took[len(took) * 99 // 100] if took else math.inf,
        )

    def _ask(self, now: float, handle: int, write: int) -> None:
        if self._current[handle] >= 0:
            self._waiting[handle].append(write)
        else:
            self._current[handle] = write
            self._send(now, handle)

    def _send(self, now: float, handle: int) -> bool:
        """Send the current write of a handle. False if the bucket refused it."""
        prefix = (self._current[handle] >> 1) % self._prefixes
        self._next[prefix] = max(self._next[prefix], now - self._pace)
        latency = self._latencies[int(now * 1e6) + handle & 0xFFFF]
        if self._bucket is None:
            self._next[prefix] += self._pace  # it waits until the server has carried out all before it
            heappush(self._events, (self._next[prefix] + latency, 4 * handle + _FREE))
            return True
        if self._next[prefix] > now + 0.05:  # the limit allows short bursts
            heappush(self._events, (now + latency + self._bucket.pause, 4 * handle + _AGAIN))
            return False
        self._next[prefix] += self._pace
        heappush(self._events, (now + latency, 4 * handle + _FREE))
        return True
