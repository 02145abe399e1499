"""HoldfastSessionService: sessions of Google ADK, kept as threads of a store."""

# pyright: reportMissingImports=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from pydantic_core import to_jsonable_python

from holdfast.adapters.seam import current
from holdfast.adapters.session_store import MESSAGES, StoreLike, StoreOwner, quoted_part, report_repairs, unpaired
from holdfast.aio.executor import to_the_end
from holdfast.errors import Conflict, InvalidArgument, TooLarge, Unsupported
from holdfast.threads.save import NEW
from holdfast.threads.thread import Thread
from holdfast.threads.together import AppendTo, SaveTo

_START: Final = "state"  # the key of the state that the session was created with
_RACES: Final = 100


class HoldfastSessionService(StoreOwner, BaseSessionService):  # type: ignore[misc]  # not installed for type checks
    """ADK's session service: a session is the thread APP/USER/SESSION. APP and APP/USER have the shared states.

    An event and its deltas of the shared states are saved in one commit. A directory or a bucket saves the event first:
    if the process is killed then, the shared states miss the deltas.

    `store` is what `holdfast.open` takes, or an open handle. An event is appended if the session has not changed since
    it was read; otherwise StaleSessionError. In a run of Holdfast, a resumed run gets the session as it was when the
    run read it first, so that no event is added twice.

    `repairs` lists the function calls without responses, and the reverse, of the session that was last read. ADK leaves
    them out of its requests; the stored events are not changed.
    """

    def __init__(self, store: StoreLike) -> None:
        super().__init__(store)
        self.repairs: list[str] = []
        self._opened: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()  # by claimed run: steps of threads

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Any:
        name = (session_id or "").strip() or str(uuid.uuid4())
        thread = self._thread(app_name, user_id, name)
        await self._open(thread)
        app, user, own = _scoped(state or {})
        now = time.time()

        def create() -> Any:
            first = SaveTo(thread, {_START: own, MESSAGES: []}, metadata=_details(now), expect=NEW)
            saved = self._save(thread, None, first, *self._shares(app_name, user_id, app, user))
            if saved is None:
                raise AlreadyExistsError(f"session {name!r} of user {user_id!r} already exists")
            return self._session(app_name, user_id, name, own, [], now, saved)

        return await to_the_end(create)

    async def get_session(self, *, app_name: str, user_id: str, session_id: str, config: Any = None) -> Any:
        """The session, with its newest events if `config` limits them; None if there is none."""
        thread = self._thread(app_name, user_id, session_id.strip())
        await self._open(thread)
        found = await to_the_end(lambda: self._read(app_name, user_id, session_id.strip(), config))
        report_repairs(session_id, self.repairs)
        return found

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> Any:
        """The sessions of an app or of a user, without their events; the last one was changed last."""

        def read() -> list[Any]:
            found = [self._read(app_name, *parts, None, is_listed=True) for parts in self._names(app_name, user_id)]
            return sorted(
                (each for each in found if each), key=lambda each: (each.last_update_time, each.user_id, each.id)
            )

        return ListSessionsResponse(sessions=await to_the_end(read))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with its history. Nothing happens if there is none."""
        thread = self._thread(app_name, user_id, session_id.strip())
        await to_the_end(lambda: None if thread.head() is None else thread.drop())

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """The state that the sessions of a user share, with keys without the prefix."""
        return await to_the_end(lambda: self._shared(app_name, user_id))

    async def append_event(self, session: Any, event: Any) -> Any:
        """Append an event, and change the states by its delta. StaleSessionError if the session was changed since."""
        if event.partial:
            return event
        thread = self._thread(session.app_name, session.user_id, session.id)
        await self._open(thread)
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        app, user, _ = _scoped(event.actions.state_delta if event.actions else {})
        record = _record(event)

        def append() -> str:
            head = thread.head()
            if head is None:
                raise SessionNotFoundError(f"session {session.id!r} of user {session.user_id!r} does not exist")
            marker = session._storage_update_marker
            if marker is None and head.metadata["updated"] > session.last_update_time:
                raise _stale(session)
            expect = head.id if marker is None else marker
            appended = AppendTo(thread, MESSAGES, [record], expect=expect, metadata=_details(event.timestamp))
            shares = self._shares(session.app_name, session.user_id, app, user)
            saved = self._save(thread, expect, appended, *shares)
            if saved is None:
                raise _stale(session)
            return saved

        session._storage_update_marker = await to_the_end(append)
        session.last_update_time = event.timestamp
        return self._commit_event_to_session(session, event)

    # -- sessions in a run ------------------------------------------------------------------------------------------

    async def _open(self, thread: Thread) -> None:
        """In a run, when a step first uses a session: make the session as it was when the step did so first.

        A claim does that once: in its later steps the session is as the claim has made it.
        """
        seam = current()
        if seam is None:
            return
        opened, step = self._opened.setdefault(seam.run.core, {}), seam.run.core.step
        if opened.get(thread.name) == step:
            return
        is_made = thread.name in opened
        opened[thread.name] = step
        declare = {"session.open": {"effect": "read"}}
        head = await to_the_end(thread.head)
        now = None if head is None else head.id
        before = await seam.tool(
            "session.open", lambda: now, {"session": thread.name}, key=thread.name, declare=declare
        )
        if is_made or head is None or before == now:
            return
        if head.metadata.get("run") != seam.run.core.thread:
            raise StaleSessionError(
                f"session {thread.name!r} was changed outside of the run of thread {seam.run.core.thread!r}, which "
                "cannot be resumed. Start the run anew, in another thread or turn."
            )
        await to_the_end(thread.drop if before is None else lambda: _nothing(thread.rewind(before)))

    # -- threads ----------------------------------------------------------------------------------------------------

    def _thread(self, *parts: str) -> Thread:
        return self._hf.thread("/".join(map(quoted_part, parts)))

    def _names(self, app_name: str, user_id: str | None) -> Iterator[tuple[str, str]]:
        prefix = "/".join(map(quoted_part, (app_name,) if user_id is None else (app_name, user_id)))
        for info in list(self._hf.threads(f"{prefix}/")):
            _, *parts = map(unquote, info.name.split("/"))
            if len(parts) == 2:
                yield parts[0], parts[1]

    def _read(self, app_name: str, user_id: str, name: str, config: Any, *, is_listed: bool = False) -> Any:
        head = self._thread(app_name, user_id, name).latest()
        if head is None:
            return None
        records = head.state[MESSAGES]
        own = dict(head.state[_START])
        for record in records:
            own.update(_scoped(record.get("actions", {}).get("state_delta", {}))[2])
        if not is_listed:
            self.repairs = _problems(records)
        if is_listed or (config is not None and config.num_recent_events == 0):
            records = []
        elif config is not None and config.num_recent_events is not None:
            records = records[-config.num_recent_events :]
        if config is not None and config.after_timestamp is not None:
            records = [record for record in records if record["timestamp"] >= config.after_timestamp]
        events = [Event.model_validate(record) for record in records]
        return self._session(app_name, user_id, name, own, events, head.metadata["updated"], head.id)

    def _session(
        self, app_name: str, user_id: str, name: str, own: Any, events: list[Any], updated: float, marker: str
    ) -> Any:
        state = {
            **own,
            **{f"{State.APP_PREFIX}{key}": value for key, value in self._shared(app_name).items()},
            **{f"{State.USER_PREFIX}{key}": value for key, value in self._shared(app_name, user_id).items()},
        }
        made = Session(
            app_name=app_name, user_id=user_id, id=name, state=state, events=events, last_update_time=updated
        )
        made._storage_update_marker = marker
        return made

    def _shared(self, *parts: str) -> dict[str, Any]:
        head = self._thread(*parts).latest()
        return {} if head is None else dict(head.state)

    def _shares(
        self, app_name: str, user_id: str, app: dict[str, Any], user: dict[str, Any]
    ) -> list[tuple[Thread, dict[str, Any]]]:
        """The threads of the shared states, each with its delta."""
        return [(self._thread(app_name), app), (self._thread(app_name, user_id), user)]

    def _save(
        self, thread: Thread, before: str | None, change: SaveTo | AppendTo, *shared: tuple[Thread, dict[str, Any]]
    ) -> str | None:
        """Change a session, and the states that sessions share, in one commit; return the id of the new checkpoint.

        None, with nothing changed, if the head of the session is not `before`. If the store saves one thread at a time,
        the session is saved first, then the shared states.
        """

        def is_stale() -> bool:
            head = thread.head()
            return (None if head is None else head.id) != before

        deltas = [partial(_merged, each, delta) for each, delta in shared if delta]
        try:
            return self._commit(is_stale, lambda: change, *deltas)
        except (TooLarge, Unsupported):
            raise
        except InvalidArgument:
            if not deltas:
                raise
        saved = self._commit(is_stale, lambda: change)
        for delta in deltas if saved is not None else ():
            self._commit(lambda: False, delta)
        return saved

    def _commit(self, is_stale: Callable[[], bool], *changes: Callable[[], SaveTo | AppendTo]) -> str | None:
        """Save changes together; made again if another session changed a shared state. None if the session is stale."""
        for _ in range(_RACES):
            try:
                return self._hf.save_together([change() for change in changes])[0].id
            except Conflict:
                if is_stale():
                    return None
        raise Conflict(f"other sessions changed the shared state {_RACES} times; nothing was saved. Try again.")


def _merged(thread: Thread, delta: dict[str, Any]) -> SaveTo:
    """A save of a shared state with a delta, unless another writer changes the state first."""
    head = thread.latest()
    return SaveTo(thread, {**({} if head is None else head.state), **delta})


def _problems(records: list[Any]) -> list[str]:
    """The function calls without responses, and the responses without calls, of a session."""
    parts = [part for record in records for part in (record.get("content") or {}).get("parts") or ()]
    waiting = {id_ for record in records for id_ in record.get("long_running_tool_ids") or ()}
    kinds = {"function_call": "call", "function_response": "result"}
    items = [(kinds[name], part[name].get("id")) for part in parts for name in kinds if name in part]
    calls, answers = unpaired(item for item in items if item[1] not in waiting)
    named = [id_ for _, id_ in items if id_ not in waiting]
    return [
        *(f"function call {named[at]!r} has no response" for at in sorted(calls)),
        *(f"the response to {named[at]!r} has no function call" for at in sorted(answers)),
    ]


def _scoped(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The parts of a state: of the app, of the user, and of the session. Temporary values are left out."""
    plain: dict[str, Any] = to_jsonable_python(state, serialize_unknown=True)
    app = {key.removeprefix(State.APP_PREFIX): each for key, each in plain.items() if key.startswith(State.APP_PREFIX)}
    user = {
        key.removeprefix(State.USER_PREFIX): each for key, each in plain.items() if key.startswith(State.USER_PREFIX)
    }
    prefixes = (State.APP_PREFIX, State.USER_PREFIX, State.TEMP_PREFIX)
    return app, user, {key: each for key, each in plain.items() if not key.startswith(prefixes)}


def _record(event: Any) -> dict[str, Any]:
    """An event as plain data, without actions that are empty."""
    plain: dict[str, Any] = event.model_dump(mode="json", exclude_none=True)
    actions = {name: each for name, each in plain.pop("actions", {}).items() if each != {}}
    return {**plain, "actions": actions} if actions else plain


def _details(updated: float) -> dict[str, Any]:
    """The metadata of a checkpoint: when the session was changed, and by which run."""
    seam = current()
    return {"updated": updated} if seam is None else {"updated": updated, "run": seam.run.core.thread}


def _stale(session: Any) -> Any:
    return StaleSessionError(
        f"session {session.id!r} was changed by another writer since it was read; nothing was stored. Read it again."
    )


def _nothing(_: object) -> None:
    """Nothing: a checkpoint is not used."""
