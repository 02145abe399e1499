"""A million agents on a bucket and on PostgreSQL, simulated. `make scale` writes docs/internals/scale.md and its plots.

The requests of each verb are counted (`bench.bucket`). The commits per second of a PostgreSQL server are those that
`make bench-stores` has measured. Latencies, limits and prices are parameters; the defaults are what the services
document, or usual values. Look up your own.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from bench import bucket
from bench.scale_plot import Line, plot
from bench.simulation import Bucket, Latency, Load, Outcome, Server, simulate

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "internals" / "scale.md"
IMAGES: Final = ROOT / "docs" / "images"
MEASURED: Final = Path(__file__).parent / "results" / "stores.json"
START, END = "<!-- written by make scale -->", "<!-- end -->"
DAY: Final = 86_400
AGENTS: Final = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
FEW: Final = 16
COST: Final = "scale-cost.svg"


class Side(NamedTuple):
    """A store, with its outcomes by number of agents."""

    name: str
    outcomes: list[Outcome]
    dollars: list[float]  # per day


class Plan:
    """The parameters of the command."""

    def __init__(self, args: argparse.Namespace, rows: list[bucket.Row]) -> None:
        self.args = args
        self.prices = bucket.Prices(args.writing, args.reading)
        self.rows = rows
        step = bucket.found(self.rows, bucket.STEP).requests
        renewal = bucket.found(self.rows, bucket.RENEWAL).requests
        self.step, self.renewal = self.prices.of(step), self.prices.of(renewal)
        self.writes = round(step["put"])
        self.bucket_latency = Latency(args.put_median / 1000, args.put_p99 / 1000)
        self.server_latency = Latency(args.round_trip / 1000, 5 * args.round_trip / 1000)
        self.prefixes = args.prefixes or math.ceil(1.15 * args.agents * self.writes_of_an_agent() / args.limit)

    def writes_of_an_agent(self) -> float:
        """Per second."""
        return float(self.writes / self.args.seconds + 3 / self.args.lease)

    def load(self, agents: int) -> Load:
        args = self.args
        return Load(agents, args.seconds, self.writes, args.lease, args.agents_per_handle)

    def bucket(self, prefixes: int) -> Bucket:
        return Bucket(self.bucket_latency, prefixes, self.args.limit)

    def bucket_dollars(self, outcome: Outcome) -> float:
        return DAY * (outcome.steps * self.step + outcome.renewals * self.renewal)

    def servers(self, agents: int) -> int:
        """How many servers carry out the commits of so many agents, at 80 % of what one was measured to do."""
        commits: float = self.args.commits
        return max(1, math.ceil(agents * self.writes_of_an_agent() / (0.8 * commits)))

    def server_dollars(self, agents: int) -> float:
        return float(24 * self.args.server * self.servers(agents))


def measured(plan: Plan, agents: int, seconds: float) -> list[Side]:
    """Simulate each store with more and more agents."""
    counts = [*(count for count in AGENTS if count < agents), agents]
    sides: list[Side] = []
    for prefixes in (1, FEW, plan.prefixes):
        # Far above its limit, a store only repeats refusals.
        limit = 5 * prefixes * plan.args.limit / (plan.writes / plan.args.seconds)
        some = [count for count in counts if count <= limit]
        outcomes = [simulate(plan.load(count), plan.bucket(prefixes), seconds=seconds) for count in some]
        name = f"bucket, {prefixes} prefix{'es' if prefixes > 1 else ''}"
        sides.append(Side(name, outcomes, [plan.bucket_dollars(each) for each in outcomes]))
    server = Server(plan.server_latency, plan.args.commits)
    some = [count for count in counts if count <= 30 * plan.args.commits]
    outcomes = [simulate(plan.load(count), server, seconds=seconds) for count in some]
    sides.append(Side("PostgreSQL, one server", outcomes, [plan.server_dollars(count) for count in some]))
    # Servers do not share anything, so one of them shows what all do.
    servers = plan.servers(agents)
    share = simulate(plan.load(-(-agents // servers)), server, seconds=seconds)
    rates = {name: getattr(share, name) * servers for name in ("steps", "writes", "renewals", "refusals")}
    all_of_them = share._replace(load=plan.load(agents), **rates)
    return [*sides, Side(f"PostgreSQL, {servers} servers", [all_of_them], [plan.server_dollars(agents)])]


def agents_of(side: Side) -> list[float]:
    return [float(each.load.agents) for each in side.outcomes]


def table(sides: list[Side]) -> str:
    titles = ("store", "agents", "steps/s", "writes/s", "of the busiest prefix or server", "lease renewals/s")
    more = ("refused/s", "writes of a step, median", "p99", "keeps up", "dollars per day")
    lines = [f"| {' | '.join(titles + more)} |", f"|{'---|' * len(titles + more)}"]
    for side in sides:
        for outcome, dollars in zip(side.outcomes, side.dollars, strict=True):
            counts = (outcome.steps, outcome.writes, outcome.busiest, outcome.renewals, outcome.refusals)
            shown = " | ".join(f"{count:,.0f}" for count in counts)
            times = f"{_seconds(outcome.median)} | {_seconds(outcome.p99)}"
            holds = "yes" if outcome.holds else "**no**"
            lines.append(f"| {side.name} | {outcome.load.agents:,} | {shown} | {times} | {holds} | {dollars:,.0f} |")
    return "\n".join(lines)


def limits(plan: Plan, agents: int) -> str:
    """Where each store breaks, and what breaks it."""
    args, per_agent = plan.args, plan.writes_of_an_agent()
    handle = 1 / (plan.bucket_latency.median * 1.25 * per_agent)
    runs = agents / args.seconds / args.steps
    submitted, claimed = (bucket.found(plan.rows, name).requests for name in ("submit a run", bucket.CLAIM))
    poll = plan.prices.of(bucket.found(plan.rows, bucket.POLL).requests) * 2 * DAY
    less = plan.writes / args.seconds + 0.3 / args.lease
    needed = math.ceil(agents * per_agent / args.limit)
    hints = runs * (submitted["put"] + claimed["put"] - 4)
    sizes = [bucket.found(plan.rows, name).bytes["put"] for name in (bucket.STEP, bucket.RENEWAL)]
    sent = agents * (sizes[0] / args.seconds + sizes[1] * 3 / args.lease)
    stored = sent * DAY / 1e9 * args.storage / 30
    lines = (
        (
            f"An agent makes {per_agent:.2g} writes a second: {plan.writes} per step of {args.seconds:g} seconds, and "
            f"3 renewals per lease of {args.lease:g} seconds."
        ),
        (
            f"A prefix with {args.limit:,.0f} writes a second breaks above **{args.limit / per_agent:,.0f} agents**. "
            f"{agents:,} need {needed:,} prefixes; with 15 % to spare, {plan.prefixes:,}."
        ),
        (
            f"A handle, which makes one write at a time, breaks above about **{handle:,.0f} agents**. {agents:,} need "
            f"{agents / args.agents_per_handle:,.0f} handles of {args.agents_per_handle} agents."
        ),
        (
            f"A PostgreSQL server with {args.commits:,.0f} commits a second breaks above "
            f"**{args.commits / per_agent:,.0f} agents**. {agents:,} need {plan.servers(agents):,} servers, at 80 % of "
            "what one can do."
        ),
        (
            f"If a run ends after {args.steps} steps, {runs:,.0f} runs start per second. Their hints are {hints:,.0f} "
            "writes a second in one range of keys per namespace."
        ),
        (
            f"With leases of {10 * args.lease:g} seconds, an agent makes {less:.2g} writes a second, "
            "and the run of a dead worker is resumed later."
        ),
        (
            f"The objects repeat the ends of logs: {agents:,} agents write {sent / 1e9:,.1f} GB and "
            f"{agents * per_agent:,.0f} objects a second. They stay for a day: {sent * DAY / 1e12:,.0f} TB, which cost "
            f"{stored:,.0f} dollars a day. `hf.optimize()` must delete as many a second, in many processes."
        ),
        f"An idle worker polls twice a second, which costs {poll:,.2f} dollars a day for each of its threads.",
    )
    return "\n".join(f"- {line}" for line in lines)


def _seconds(value: float) -> str:
    return f"{value * 1000:,.0f} ms" if value < 1 else f"{value:,.1f} s"


def write(plan: Plan, sides: list[Side], *, page: Path, images: Path) -> None:
    """Write the table and the plots."""
    plots: dict[str, tuple[str, str, Callable[[Side], list[float]]]] = {
        "scale-steps.svg": ("Steps per second", "steps/s", lambda side: [each.steps for each in side.outcomes]),
        "scale-time.svg": ("p99 of the writes of a step", "seconds", lambda side: [each.p99 for each in side.outcomes]),
        COST: ("Dollars per day", "dollars", lambda side: side.dollars),
    }
    for name, (title, up, values) in plots.items():
        drawn = [side for side in sides if len(side.outcomes) > 1]
        lines = [Line(side.name, list(zip(agents_of(side), values(side), strict=True))) for side in drawn]
        if name == COST:
            counts = agents_of(sides[2])
            servers = [(count, plan.server_dollars(int(count))) for count in counts]
            lines = [lines[2], Line("PostgreSQL servers", servers)]
        images.joinpath(name).write_text(plot(title, "agents", up, lines), encoding="utf-8")
    args = plan.args
    said = (
        f"{args.agents:,} agents, a step in {args.seconds:g} seconds, leases of {args.lease:g} seconds, "
        f"{args.agents_per_handle} agents per handle. A write to the bucket takes {args.put_median:g} ms (median) and "
        f"{args.put_p99:g} ms (p99); a prefix accepts {args.limit:,.0f} a second. 1,000 writes cost {args.writing:g} "
        f"dollars. The PostgreSQL server makes {args.commits:,.0f} commits a second and costs {args.server:g} dollars "
        "an hour; its dollars are for as many servers as the agents need, at 80 % of that."
    )
    text = page.read_text("utf-8")
    head, _, rest = text.partition(START)
    _, _, tail = rest.partition(END)
    body = f"{START}\n\n{said}\n\n{table(sides)}\n\n{limits(plan, args.agents)}\n\n{END}"
    page.write_text(f"{head}{body}{tail}", encoding="utf-8")


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--agents", type=int, default=1_000_000)
    add("--seconds", type=float, default=10.0, help="from one step of an agent to the next")
    add("--lease", type=float, default=30.0, help="seconds of a lease; it is renewed three times")
    add("--steps", type=int, default=100, help="steps of a run")
    add("--agents-per-handle", type=int, default=50)
    add("--prefixes", type=int, default=0, help="0: as many as needed, with 15 %% to spare")
    add("--limit", type=float, default=3500.0, help="writes per second that a prefix of the bucket accepts")
    add("--put-median", type=float, default=25.0, help="ms of a write to the bucket")
    add("--put-p99", type=float, default=150.0, help="ms")
    add("--round-trip", type=float, default=1.0, help="ms of a request to PostgreSQL without its commit")
    add("--commits", type=float, default=_measured_commits(), help="per second of one PostgreSQL server")
    add("--writing", type=float, default=bucket.Prices().writing, help="dollars per 1,000 PUT, LIST")
    add("--reading", type=float, default=bucket.Prices().reading, help="dollars per 1,000 GET, HEAD")
    add("--storage", type=float, default=0.023, help="dollars per GB and month")
    add("--server", type=float, default=1.0, help="dollars per hour of one PostgreSQL server")
    add("--simulated", type=float, default=15.0, help="seconds to simulate")
    return parser.parse_args(arguments)


def _measured_commits() -> float:
    """The commits per second of 16 writers, as `make bench-stores` measured them."""
    numbers = json.loads(MEASURED.read_text("utf-8"))["numbers"]
    return float(round(next(each["measured"] for each in numbers if each["number"] == "P3+")))


def main() -> int:
    plan = Plan(options(sys.argv[1:]), bucket.rows())
    sides = measured(plan, plan.args.agents, plan.args.simulated)
    write(plan, sides, page=PAGE, images=IMAGES)
    sys.stdout.write(f"{table(sides)}\n\n{limits(plan, plan.args.agents)}\n")
    return 0 if sides[2].outcomes[-1].holds else 1


if __name__ == "__main__":
    sys.exit(main())
