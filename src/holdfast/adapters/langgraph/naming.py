"""Thread names and configs: each namespace of a LangGraph thread is one Holdfast thread, its track."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig

from holdfast.errors import InvalidArgument

_BETWEEN = "#"


def track_name(thread_id: str, namespace: str) -> str:
    """The name of the Holdfast thread for a namespace; for the root namespace it is the thread id itself."""
    name = thread_id.replace("%", "%25").replace(_BETWEEN, "%23")
    return f"{name}{_BETWEEN}{namespace}" if namespace else name


def tracks_prefix(thread_id: str) -> str:
    """The common prefix of the names of all namespaces except the root."""
    return track_name(thread_id, "") + _BETWEEN


def journal_name(thread_id: str) -> str:
    """The name of the thread with the journal of a LangGraph thread's tools.

    No track has such a name: in track names a `%` is followed by digits.
    """
    return track_name(thread_id, "") + "%tools"


def of_track(name: str) -> tuple[str, str]:
    """The thread id and the namespace of a track's name."""
    name, _, namespace = name.partition(_BETWEEN)
    return name.replace("%23", _BETWEEN).replace("%25", "%"), namespace


def thread_id_in(config: RunnableConfig) -> Any:
    """The thread id of a config as given: LangGraph allows other types than strings."""
    return config.get("configurable", {}).get("thread_id")


def thread_id_of(config: RunnableConfig) -> str:
    """The thread id of a config, as a string."""
    return checked_thread_id(thread_id_in(config))


def checked_thread_id(given: object) -> str:
    thread_id = given if isinstance(given, str) else "" if given is None else str(given)
    if not thread_id:
        raise InvalidArgument('the config has no thread_id; pass {"configurable": {"thread_id": "…"}}')
    return thread_id


def namespace_of(config: RunnableConfig) -> str:
    return config.get("configurable", {}).get("checkpoint_ns") or ""


def checkpoint_id_of(config: RunnableConfig) -> str | None:
    return config.get("configurable", {}).get("checkpoint_id") or None


def config_of(thread_id: Any, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id},
    }
