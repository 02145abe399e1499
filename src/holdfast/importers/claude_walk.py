"""Turn a conversation in a Claude Code transcript into checkpoints, one for each step.

A step ends after a prompt, after the results of a reply's tool calls, or after an answer. Its checkpoint has the uuid
and the time of the step's last line; its state is the conversation up to that line. `parentUuid` gives the parent, so a
rewind in Claude Code becomes a branch. There are three exceptions. A reply with several tool calls forks the tree for
each call; here its lines and the results follow one another. A compaction removes the messages before it from the
state, but its checkpoint still follows theirs. A line whose parent is not in the file follows the line before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from holdfast.adapters.generic import usage_of
from holdfast.importers.claude_lines import SAID, SPOKEN, Line, TranscriptFile
from holdfast.importers.foreign_file import moment_of_text
from holdfast.importers.foreign_record import Entry, Record, Remark, Unreadable
from holdfast.importers.frame import Unusable
from holdfast.importers.lineage import Lineage, waits_for
from holdfast.types import Usage

_TOLD: Final = ("sessionId", "cwd", "gitBranch", "version", "permissionMode", "agentId")


class Link(msgspec.Struct, frozen=True):
    """The message line that a line is or follows.

    `restarts`: the messages before it are not part of the later states. `kept` are those that a compaction kept: the
    first, the last, and the line that they are placed after.
    """

    node: str | None = None
    restarts: bool = False
    kept: tuple[str, str, str] | None = None


class _Node(msgspec.Struct, frozen=True):
    """A message line. `turn` is the reply that it belongs to, with its tool calls, or the line itself.

    `parent` is the line it follows, `offsets` the offsets of its messages, `waiting` the calls that have no result yet.
    """

    parent: str | None
    turn: str
    trigger: str
    usage: Usage | None
    waiting: frozenset[str]
    offsets: tuple[int, ...]
    remarks: tuple[str, ...]


class Walk:
    """One pass over the lines of a file that `wants` accepts. `before` reads another file up to a line."""

    def __init__(
        self,
        file: TranscriptFile,
        wants: Callable[[Line], bool],
        *,
        agent: dict[str, Any] | None = None,
        before: Callable[[str], tuple[str, list[Any]] | None] | None = None,
        is_main: bool = True,
    ) -> None:
        self._file = file
        self._wants = wants
        self._agent = agent
        self._before = before
        self._is_main = is_main
        self._lineage = Lineage(self._read)
        self._links: dict[str, Link] = {}
        self._nodes: dict[str, _Node] = {}
        self._steps: dict[str, int] = {}  # of the checkpoints yielded so far
        self._turns: dict[str, str] = {}  # the newest line of each turn
        self._replies: dict[str, str] = {}  # the turn of each reply of the model
        self._calls: dict[str, str] = {}  # the turn of each tool call
        self._spent: dict[str, Usage] = {}  # the usage before each turn
        self._session: dict[str, Any] = {}
        self._last: tuple[str, Line] | None = None
        self._history: list[Any] = []
        self._owed: tuple[str, ...] = ()  # remarks for the first checkpoint
        self._left_out: Counter[str] = Counter()

    def records(self) -> Iterator[Entry]:
        """All checkpoints and findings, in the order of the file."""
        for line in self._file.lines():
            if isinstance(line, Line):
                yield from self._follow(line)
            elif self._is_main:
                number, why = line
                yield Unreadable(f"line {number}", str(why))
        if self._last is not None:
            yield from self._given(self._last[0])
        if self._left_out:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self._left_out.items()))
            yield Remark(None, f"lines outside the conversation were left out: {kinds}")

    def up_to(self, uuid: str) -> list[Any] | None:
        """The messages up to a line, None if it is not in the file."""
        for line in self._file.lines():
            if isinstance(line, Line):
                for _ in self._follow(line):
                    pass
            link = self._links.get(uuid)
            if link is not None:
                return [] if link.node is None or link.restarts else self._lineage.up_to(link.node)
        return None

    # -- lines ------------------------------------------------------------------------------------------------------

    def _follow(self, line: Line) -> Iterator[Entry]:
        kind, uuid = line.kind, line.uuid
        if kind in SAID and uuid is None:
            if self._is_main:
                yield from self._note(line)
        elif not self._wants(line):
            return
        elif kind in SPOKEN:
            yield from self._spoken(line)
        elif uuid is None or uuid not in self._links:
            if uuid is not None:
                self._pass_by(line, uuid)
            if not line.is_boundary:
                self._left_out[kind or "without a type"] += 1

    def _spoken(self, line: Line) -> Iterator[Entry]:
        item, uuid = f"line {line.number}", line.uuid
        if uuid is None:
            yield Unreadable(item, "it has no uuid")
            return
        try:
            message = line.message()
            if uuid not in self._nodes:
                yield from self._add(line, uuid, message)
            elif all(self._file.at(offset).members == line.members for offset in self._nodes[uuid].offsets[:1]):
                yield Remark(item, "the file contains it twice; it was imported once")
            else:
                yield Unreadable(item, "an earlier line has the same uuid")
        except Unusable as error:
            if uuid not in self._links:
                self._pass_by(line, uuid)
            yield Unreadable(item, str(error))

    def _pass_by(self, line: Line, uuid: str) -> None:
        """Record a line without a message: its children follow the line that it followed."""
        self._links[uuid], remarks = self._link(line)
        if self._last is None:
            self._owed += remarks

    def _link(self, line: Line) -> tuple[Link, tuple[str, ...]]:
        """The link of a line, and remarks about it."""
        parent = line.parent
        found = Link() if parent is None else self._links.get(parent)
        remarks: tuple[str, ...] = ()
        if parent is None and self._last is not None:
            # An explicit null parent starts another conversation.
            found = Link(self._last[0], restarts="parentUuid" in line.members)
        if found is None:
            found, remarks = self._lost(parent or "")
        if line.is_boundary:
            kept = line.kept
            found = Link(found.node, True, None if kept is None or kept[1] not in self._links else kept)
        elif line.members.get("isCompactSummary") is True:
            found = msgspec.structs.replace(found, restarts=True)
        return found, remarks

    def _lost(self, parent: str) -> tuple[Link, tuple[str, ...]]:
        """The link of a line whose parent is not in the file before it."""
        if self._last is not None:
            why = f"its parent {parent} is not in the file before it; it was placed after the previous line"
            return Link(self._last[0]), (why,)
        if self._before is None:
            return Link(), ()
        found = self._before(parent)
        self._before = None  # a file continues at most one other
        if found is None:
            return Link(), (f"its parent {parent} is in no file of the folder; the earlier messages are missing",)
        session, self._history = found
        return Link(), (f"it continues session {session}, whose messages are included",)

    def _add(self, line: Line, uuid: str, message: dict[str, Any]) -> Iterator[Entry]:
        """Add a message line. Yields the checkpoints of the steps that end before it."""
        link, remarks = self._link(line)
        remarks, self._owed = (*self._owed, *remarks), ()
        over = None if link.node is None else self._nodes[link.node]
        turn = self._turn(line, uuid, over)
        parent = None if over is None else self._turns[over.turn]
        before = None if parent is None else self._nodes[parent]
        trigger = "compaction" if line.members.get("isCompactSummary") is True else line.trigger
        if self._last is not None and self._last[0] != parent:
            yield from self._given(self._last[0])  # another branch continues
            yield from self._given(parent)
        elif before is not None and (link.restarts or _begins(trigger, turn, before)):
            yield from self._given(parent)
        offsets = self._offsets(line, uuid, link)
        own = [message] if len(offsets) == 1 else self._messages(offsets)
        if parent is None:
            own = [*self._history, *own]
        self._lineage.put(uuid, None if link.restarts else parent, own)
        waiting = frozenset[str]() if before is None or link.restarts else before.waiting
        waiting = waiting.union(line.ids("tool_use", "id")).difference(line.ids("tool_result", "tool_use_id"))
        usage = self._usage(message, turn, before)
        self._nodes[uuid] = _Node(parent, turn, trigger, usage, waiting, offsets, remarks)
        self._links[uuid] = Link(uuid)
        self._calls.update(dict.fromkeys(line.ids("tool_use", "id"), turn))
        self._turns[turn] = uuid
        self._last = uuid, line

    def _turn(self, line: Line, uuid: str, over: _Node | None) -> str:
        """The turn of a line: that of its reply, of the call whose result it is, or a new one."""
        if over is not None:
            if line.reply is not None and self._replies.get(line.reply) == over.turn:
                return over.turn
            if any(self._calls.get(call) == over.turn for call in line.ids("tool_result", "tool_use_id")):
                return over.turn
        if line.reply is not None:
            self._replies[line.reply] = uuid
        return uuid

    def _usage(self, message: dict[str, Any], turn: str, before: _Node | None) -> Usage | None:
        """The usage up to a line. Each line of a reply has the usage of the reply so far."""
        spent = None if before is None else before.usage
        cost = usage_of({"usage": message["usage"]}) if type(message.get("usage")) is dict else None
        if cost is None:
            return spent
        base = self._spent.setdefault(turn, spent or Usage())
        return Usage(
            input=base.input + cost.input,
            output=base.output + cost.output,
            cached=base.cached + cost.cached,
            total=base.total + cost.total,
        )

    # -- records ----------------------------------------------------------------------------------------------------

    def _given(self, uuid: str | None) -> Iterator[Record]:
        """The checkpoint that ends with a line, unless it was yielded before."""
        if uuid is None or uuid in self._steps:
            return
        node = self._nodes[uuid]
        line = self._last[1] if self._last is not None and self._last[0] == uuid else self._file.at(node.offsets[0])
        remarks = list(node.remarks)
        above = node.parent
        while above is not None and above not in self._steps:
            remarks = [*self._nodes[above].remarks, *remarks]
            above = self._nodes[above].parent
        yield self._record(uuid, above, node, line, node.trigger, tuple(remarks))

    def _note(self, line: Line) -> Iterator[Record]:
        """Record a line about the session, such as a title. A new one becomes a checkpoint after the last message."""
        kind = line.kind
        said = {name: value for name, value in line.members.items() if name not in ("type", "sessionId")}
        if self._session.get(kind) == said:
            return
        if self._last is not None:
            yield from self._given(self._last[0])
        self._session = {**self._session, kind: said}
        if self._last is None:
            return
        last, spoken = self._last
        above = self._nodes[last]
        key = _next_note(last)
        if key not in self._nodes:
            self._nodes[key] = msgspec.structs.replace(above, parent=last, trigger=kind, offsets=(), remarks=())
            self._lineage.put(key, last, [])
            self._turns[above.turn] = key
            self._last = key, spoken
            yield self._record(key, last, above, spoken, kind, ())

    def _record(
        self, uuid: str, above: str | None, node: _Node, line: Line, trigger: str, remarks: tuple[str, ...]
    ) -> Record:
        self._steps[uuid] = 1 if above is None else self._steps[above] + 1
        state: dict[str, Any] = {"messages": self._lineage.up_to(uuid)}
        if self._session:
            state["session"] = self._session
        if self._agent is not None:
            state["agent"] = self._agent
        kind = None if self._agent is None else self._agent.get("agentType")
        return Record(
            id=uuid,
            step=self._steps[uuid],
            created_at=moment_of_text(line.members.get("timestamp")),
            state=state,
            parent=above,
            trigger=trigger,
            metadata={name: said for name in _TOLD if (said := line.text(name)) is not None},
            agent=kind if type(kind) is str and kind else line.text("agentName") or line.text("agentId"),
            usage=node.usage,
            resume_hint=waits_for(len(node.waiting)),
            remarks=remarks,
        )

    # -- messages ---------------------------------------------------------------------------------------------------

    def _offsets(self, line: Line, uuid: str, link: Link) -> tuple[int, ...]:
        """The offsets of the messages that a line adds: its own, and those that a compaction kept."""
        if link.kept is None:
            return (line.offset,)
        first, last, anchor = link.kept
        end, start = self._links[last].node, self._links.get(first, Link()).node
        way = [] if end is None else self._lineage.way(end, start)
        kept = tuple(offset for node in way for offset in self._nodes[node].offsets) if start in way else ()
        return (line.offset, *kept) if anchor == uuid else (*kept, line.offset)

    def _read(self, node: str) -> list[Any]:
        own = self._messages(self._nodes[node].offsets)
        return [*self._history, *own] if self._nodes[node].parent is None else own

    def _messages(self, offsets: tuple[int, ...]) -> list[Any]:
        return [self._file.at(offset).message() for offset in offsets]


def _begins(trigger: str, turn: str, before: _Node) -> bool:
    """Whether a line starts a step: a reply after a prompt, or a prompt after a reply."""
    if trigger == "assistant":
        return turn != before.turn
    return trigger == "user" and before.trigger != "user"


def _next_note(last: str) -> str:
    uuid, _, number = last.partition("#")
    return f"{uuid}#{int(number) + 1 if number.isdecimal() else 1}"
