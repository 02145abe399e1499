"""Turn a conversation in a Claude Code transcript into checkpoints, one for each step.

A step ends after a prompt, after the results of a reply's tool calls, or after an answer. Its checkpoint has the uuid
and the time of the step's last line; its state is the conversation up to that line. `parentUuid` gives the parent, so a
rewind in Claude Code becomes a branch. There are three exceptions. A reply with several tool calls forks the tree for
each call; here its lines and the results follow one another. A compaction removes the messages before it from the
state, but its checkpoint still follows theirs. A line whose parent is not in the file follows the line before it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Final

import msgspec
from msgspec.structs import replace

from holdfast.adapters.generic import usage_of
from holdfast.codec import storable
from holdfast.errors import Unsupported
from holdfast.importers.foreign import Entry, ForeignRecord, Remark, Unreadable
from holdfast.importers.foreign_files import (
    as_object,
    moment_of_text,
    object_of,
    open_file,
    shown_name,
    valid_text,
    waits_for,
)
from holdfast.importers.frame import Unusable
from holdfast.types import Usage

SPOKEN: Final = frozenset({"user", "assistant", "attachment"})
"""Types of lines that are sent to the model or written by it."""

ABOUT: Final = frozenset({"custom-title", "ai-title", "summary", "tag", "agent-name", "pr-link"})
"""Types of lines that describe the session as a whole; they are outside the tree."""

_AROUND_A_MESSAGE: Final = 2  # a state and its list of messages
_METADATA: Final = ("sessionId", "cwd", "gitBranch", "version", "permissionMode", "agentId")


# -- lines -------------------------------------------------------------------------------------------------------------


class TranscriptLine(msgspec.Struct, frozen=True):
    """One line: a JSON object, and its offset in the file."""

    number: int
    offset: int
    members: dict[str, Any]

    @property
    def kind(self) -> str:
        return self.text("type") or ""

    @property
    def uuid(self) -> str | None:
        return self.text("uuid")

    @property
    def parent(self) -> str | None:
        """The line that this one follows. A compaction names it in another field."""
        return self.text("parentUuid") or (self.text("logicalParentUuid") if self.is_boundary else None)

    @property
    def is_boundary(self) -> bool:
        """Whether the conversation was compacted here: later lines follow a summary."""
        return self.kind == "system" and self.members.get("subtype") == "compact_boundary"

    @property
    def is_summary(self) -> bool:
        return self.members.get("isCompactSummary") is True

    @property
    def is_sidechain(self) -> bool:
        """Whether a sub-agent wrote it."""
        return self.members.get("isSidechain") is True

    @property
    def reply(self) -> str | None:
        """The id of the model's reply that this line is part of: each block of a reply is a line."""
        found = self._message.get("id") if self.kind == "assistant" else None
        return found if type(found) is str else None

    @property
    def trigger(self) -> str:
        """The type of the line, "tool_result" or "compaction"."""
        return "compaction" if self.is_summary else "tool_result" if self.answers else self.kind

    @property
    def calls(self) -> list[str]:
        """The ids of the tool calls in it."""
        return self._ids("tool_use", "id")

    @property
    def answers(self) -> list[str]:
        """The ids of the tool calls that it has the results of."""
        return self._ids("tool_result", "tool_use_id")

    @property
    def kept(self) -> tuple[str, str, str] | None:
        """The messages that a compaction kept: the first, the last, and the line that they are placed after."""
        about = self.members.get("compactMetadata")
        segment = about.get("preservedSegment") if type(about) is dict else None
        if type(segment) is not dict:
            return None
        found = [segment.get(name) for name in ("headUuid", "tailUuid", "anchorUuid")]
        first, last, anchor = (each if type(each) is str else "" for each in found)
        return (first, last, anchor) if first and last else None

    def text(self, name: str) -> str | None:
        found = self.members.get(name)
        return found if type(found) is str and found else None

    def message(self) -> dict[str, Any]:
        """The message that the line adds to the conversation, with all other members under `line`."""
        rest = {name: value for name, value in self.members.items() if name not in ("message", "attachment")}
        if self.kind == "attachment":
            found: dict[str, Any] = {"role": "attachment", "attachment": self.members.get("attachment"), "line": rest}
        else:
            found = {"role": self.kind, **as_object(self.members.get("message"), "its message"), "line": rest}
        try:
            storable.check(found, _AROUND_A_MESSAGE)
        except Unsupported as error:
            raise Unusable(str(error)) from None
        return found

    @property
    def _message(self) -> dict[str, Any]:
        found = self.members.get("message")
        return found if type(found) is dict else {}

    def _ids(self, kind: str, name: str) -> list[str]:
        blocks = self._message.get("content")
        of_kind = (each for each in (blocks if type(blocks) is list else ()) if type(each) is dict)
        return [id for each in of_kind if each.get("type") == kind and type(id := each.get(name)) is str]


Places = Sequence[tuple[int, int]]
"""The numbers and offsets of lines."""


class TranscriptFile:
    """A transcript file, read line by line."""

    def __init__(self, path: str, limit: int) -> None:
        self.path: Final = path
        self.limit: Final = limit

    @property
    def stem(self) -> str:
        return shown_name(os.path.basename(self.path).removesuffix(".jsonl"))

    def raw(self) -> Iterator[tuple[int, int, bytes]]:
        """The non-empty lines: number, offset and bytes. A line over the limit is cut off."""
        with open(open_file(self.path), "rb") as file:
            number = offset = 0
            while line := self._next(file):
                number += 1
                if line.strip(b" \t\r\n\0"):
                    yield number, offset, line
                offset += len(line)
                while not line.endswith(b"\n") and (line := self._next(file)):
                    offset += len(line)

    def lines(self, places: Places | None = None) -> Iterator[TranscriptLine | tuple[int, Unusable]]:
        """The lines, all or those at some places; for an unreadable line its number and the error.

        Unusable if the file cannot be read.
        """
        for number, offset, data in self.raw() if places is None else self._raw_at(places):
            try:
                yield TranscriptLine(number, offset, self._members(data))
            except Unusable as error:
                yield number, error

    def at(self, offset: int) -> TranscriptLine:
        """Read the line at an offset."""
        with open(open_file(self.path), "rb") as file:
            file.seek(offset)
            return TranscriptLine(0, offset, self._members(self._next(file)))

    def _raw_at(self, places: Places) -> Iterator[tuple[int, int, bytes]]:
        with open(open_file(self.path), "rb") as file:
            for number, offset in places:
                file.seek(offset)
                yield number, offset, self._next(file)

    def _next(self, file: BinaryIO) -> bytes:
        try:
            return file.readline(self.limit + 1)
        except OSError as error:
            raise Unusable(f"it cannot be read ({error.strerror})") from None

    def _members(self, data: bytes) -> dict[str, Any]:
        if len(data) > self.limit:
            raise Unusable(
                f"it has more than {self.limit} bytes, the limit; raise it with max_file_bytes= or --max-file-bytes"
            )
        return object_of(data)


# -- lines → checkpoints -----------------------------------------------------------------------------------------------


class _Link(msgspec.Struct, frozen=True):
    """The message line that a line is or follows.

    `restarts`: the messages before it are not part of the later states. `kept` are those that a compaction kept: the
    first, the last, and the line that they are placed after.
    """

    node: str | None = None
    restarts: bool = False
    kept: tuple[str, str, str] | None = None


class _Node(msgspec.Struct, frozen=True):
    """A message line. `turn` is the reply that it belongs to, with its tool calls, or the line itself.

    `parent` is the line it follows, and `restarts` says that its state does not have the messages before it. `offsets`
    are those of its messages, `waiting` the calls that have no result yet.
    """

    parent: str | None
    restarts: bool
    turn: str
    trigger: str
    usage: Usage | None
    waiting: frozenset[str]
    offsets: tuple[int, ...]
    remarks: tuple[str, ...]


class Walk:
    """One pass over the lines of a file that `wants` accepts. `before` reads another file up to a line.

    With `places` only these lines are read: those of a sub-agent in a session's file.
    """

    def __init__(
        self,
        file: TranscriptFile,
        wants: Callable[[TranscriptLine], bool],
        *,
        agent: dict[str, Any] | None = None,
        before: Callable[[str], tuple[str, list[Any]] | None] | None = None,
        places: Places | None = None,
    ) -> None:
        self._file = file
        self._wants = wants
        self._agent = agent
        self._before = before
        self._places = places
        self._links: dict[str, _Link] = {}
        self._nodes: dict[str, _Node] = {}
        self._steps: dict[str, int] = {}  # of the checkpoints yielded so far
        self._turns: dict[str, str] = {}  # the newest line of each turn
        self._replies: dict[str, str] = {}  # the turn of each reply of the model
        self._calls: dict[str, str] = {}  # the turn of each tool call
        self._spent: dict[str, Usage] = {}  # the usage before each turn
        self._fresh: dict[str, list[Any]] = {}  # the messages of lines that no checkpoint has yet
        self._session: dict[str, Any] = {}
        self._last: tuple[str, TranscriptLine] | None = None
        self._history: list[Any] = []
        self._owed: tuple[str, ...] = ()  # remarks for the first checkpoint
        self._left_out: Counter[str] = Counter()

    def records(self) -> Iterator[Entry]:
        """All checkpoints and findings, in the order of the file."""
        for line in self._file.lines(self._places):
            if isinstance(line, TranscriptLine):
                yield from self._follow(line)
            else:
                yield Unreadable(f"line {line[0]}", str(line[1]))
        if self._last is not None:
            yield from self._given(self._last[0])
        if self._left_out:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self._left_out.items()))
            yield Remark(None, f"lines outside the conversation were left out: {kinds}")

    def up_to(self, uuid: str) -> list[Any] | None:
        """The messages up to a line, None if it is not in the file."""
        for line in self._file.lines():
            if isinstance(line, TranscriptLine):
                for _ in self._follow(line):
                    pass
            link = self._links.get(uuid)
            if link is not None:
                return [] if link.node is None or link.restarts else self._messages_of(self._way(link.node))
        return None

    # -- lines ------------------------------------------------------------------------------------------------------

    def _follow(self, line: TranscriptLine) -> Iterator[Entry]:
        kind, uuid = line.kind, line.uuid
        if kind in ABOUT and uuid is None:
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

    def _spoken(self, line: TranscriptLine) -> Iterator[Entry]:
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

    def _pass_by(self, line: TranscriptLine, uuid: str) -> None:
        """Record a line without a message: its children follow the line that it followed."""
        self._links[uuid], remarks = self._link(line)
        if self._last is None:
            self._owed += remarks

    def _link(self, line: TranscriptLine) -> tuple[_Link, tuple[str, ...]]:
        """The link of a line, and remarks about it."""
        parent = line.parent
        found = _Link() if parent is None else self._links.get(parent)
        remarks: tuple[str, ...] = ()
        if parent is None and self._last is not None:
            # An explicit null parent starts another conversation.
            found = _Link(self._last[0], restarts="parentUuid" in line.members)
        if found is None:
            found, remarks = self._lost(parent or "")
        if line.is_boundary:
            kept = line.kept
            found = _Link(found.node, True, None if kept is None or kept[1] not in self._links else kept)
        elif line.is_summary:
            found = replace(found, restarts=True)
        return found, remarks

    def _lost(self, parent: str) -> tuple[_Link, tuple[str, ...]]:
        """The link of a line whose parent is not in the file before it."""
        if self._last is not None:
            why = f"its parent {parent} is not in the file before it; it was placed after the previous line"
            return _Link(self._last[0]), (why,)
        if self._before is None:
            return _Link(), ()
        found = self._before(parent)
        self._before = None  # a file continues at most one other
        if found is None:
            return _Link(), (f"its parent {parent} is in no file of the folder; the earlier messages are missing",)
        session, self._history = found
        return _Link(), (f"it continues session {session}, whose messages are included",)

    def _add(self, line: TranscriptLine, uuid: str, message: dict[str, Any]) -> Iterator[Entry]:
        """Add a message line. Yields the checkpoints of the steps that end before it."""
        link, remarks = self._link(line)
        remarks, self._owed = (*self._owed, *remarks), ()
        over = None if link.node is None else self._nodes[link.node]
        turn = self._turn(line, uuid, over)
        parent = None if over is None else self._turns[over.turn]
        before = None if parent is None else self._nodes[parent]
        if self._last is not None and self._last[0] != parent:
            yield from self._given(self._last[0])  # another branch continues
            yield from self._given(parent)
        elif before is not None and (link.restarts or _begins(line.trigger, turn, before)):
            yield from self._given(parent)
        offsets = self._offsets(line, uuid, link)
        self._fresh[uuid] = [message] if len(offsets) == 1 else [self._file.at(each).message() for each in offsets]
        waiting = frozenset[str]() if before is None or link.restarts else before.waiting
        if line.calls or line.answers:
            waiting = waiting.union(line.calls).difference(line.answers)
        usage = self._usage(message, turn, before)
        is_first = link.restarts or parent is None
        self._nodes[uuid] = _Node(parent, is_first, turn, line.trigger, usage, waiting, offsets, remarks)
        self._links[uuid] = _Link(uuid)
        self._calls.update(dict.fromkeys(line.calls, turn))
        self._turns[turn] = uuid
        self._last = uuid, line

    def _turn(self, line: TranscriptLine, uuid: str, over: _Node | None) -> str:
        """The turn of a line: that of its reply, of the call whose result it is, or a new one."""
        if over is not None:
            if line.reply is not None and self._replies.get(line.reply) == over.turn:
                return over.turn
            if any(self._calls.get(call) == over.turn for call in line.answers):
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

    def _given(self, uuid: str | None) -> Iterator[ForeignRecord]:
        """The checkpoint that ends with a line, unless it was yielded before."""
        if uuid is None or uuid in self._steps:
            return
        node = self._nodes[uuid]
        is_last = self._last is not None and self._last[0] == uuid
        line = self._last[1] if is_last and self._last is not None else self._file.at(node.offsets[0])
        yield self._record(uuid, node, line)

    def _note(self, line: TranscriptLine) -> Iterator[ForeignRecord]:
        """Record a line about the session, such as a title. A new one becomes a checkpoint after the last message."""
        about = {name: value for name, value in line.members.items() if name not in ("type", "sessionId")}
        if self._session.get(line.kind) == about:
            return
        if self._last is not None:
            yield from self._given(self._last[0])
        self._session = {**self._session, line.kind: about}
        if self._last is None:
            return
        last, spoken = self._last
        uuid, _, number = last.partition("#")
        key = f"{uuid}#{int(number) + 1 if number.isdecimal() else 1}"
        if key not in self._nodes:
            above = self._nodes[last]
            note = replace(above, parent=last, restarts=False, trigger=line.kind, offsets=(), remarks=())
            self._nodes[key], self._fresh[key] = note, []
            self._turns[above.turn] = key
            self._last = key, spoken
            yield self._record(key, note, spoken)

    def _record(self, uuid: str, node: _Node, line: TranscriptLine) -> ForeignRecord:
        way: list[str] = [uuid]  # the lines since the checkpoint before it
        while (above := self._nodes[way[-1]].parent) is not None and above not in self._steps:
            way.append(above)
        way.reverse()
        starts = [at for at, each in enumerate(way) if self._nodes[each].restarts]
        messages = self._messages_of(way[starts[-1] :] if starts else way)
        self._steps[uuid] = 1 if above is None else self._steps[above] + 1
        for each in way:
            self._fresh.pop(each, None)  # read again if another branch needs it
        state: dict[str, Any] = {"messages": messages}
        if self._session:
            state["session"] = self._session
        if self._agent is not None:
            state["agent"] = self._agent
        kind = None if self._agent is None else self._agent.get("agentType")
        agent = kind if type(kind) is str and kind else line.text("agentName") or line.text("agentId")
        return ForeignRecord(
            id=uuid,
            step=self._steps[uuid],
            created_at=moment_of_text(line.members.get("timestamp")),
            state=state,
            parent=above,
            grows=not starts,
            trigger=node.trigger,
            metadata={name: found for name in _METADATA if (found := line.text(name)) is not None},
            agent=None if agent is None else valid_text(agent),
            usage=node.usage,
            resume_hint=waits_for(len(node.waiting)),
            remarks=tuple(remark for each in way for remark in self._nodes[each].remarks),
        )

    # -- messages ---------------------------------------------------------------------------------------------------

    def _offsets(self, line: TranscriptLine, uuid: str, link: _Link) -> tuple[int, ...]:
        """The offsets of the messages that a line adds: its own, and those that a compaction kept."""
        if link.kept is None:
            return (line.offset,)
        first, last, anchor = link.kept
        end, start = self._links[last].node, self._links.get(first, _Link()).node
        way = [] if end is None else self._way(end, start)
        kept = tuple(offset for node in way for offset in self._nodes[node].offsets) if start in way else ()
        return (line.offset, *kept) if anchor == uuid else (*kept, line.offset)

    def _way(self, end: str, start: str | None = None) -> list[str]:
        """The lines whose messages are in the state at `end`, from the first one or from `start`."""
        found = [end]
        while found[-1] != start and not self._nodes[found[-1]].restarts:
            found.append(self._nodes[found[-1]].parent or "")
        return found[::-1]

    def _messages_of(self, way: list[str]) -> list[Any]:
        found: list[Any] = []
        for each in way:
            node = self._nodes[each]
            own = self._fresh.get(each)
            found += self._history if node.parent is None else ()
            found += own if own is not None else [self._file.at(offset).message() for offset in node.offsets]
        return found


def _begins(trigger: str, turn: str, before: _Node) -> bool:
    """Whether a line starts a step: a reply after a prompt, or a prompt after a reply."""
    if trigger == "assistant":
        return turn != before.turn
    return trigger == "user" and before.trigger != "user"
