"""Names of threads: one thread of Holdfast's for each namespace of a LangGraph thread."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig

from holdfast.errors import InvalidArgument

_BETWEEN = "#"


def track_name(thread_id: str, namespace: str) -> str:
    """The thread that holds a namespace; that of the root namespace is named like the LangGraph thread itself."""
    name = thread_id.replace("%", "%25").replace(_BETWEEN, "%23")
    return f"{name}{_BETWEEN}{namespace}" if namespace else name


def tracks_prefix(thread_id: str) -> str:
    """What the names of all namespaces but the root begin with."""
    return track_name(thread_id, "") + _BETWEEN


def journal_name(thread_id: str) -> str:
    """The thread that holds the journal of a LangGraph thread's tools.

    No track is named so: in the names of those, a `%` is followed by digits.
    """
    return track_name(thread_id, "") + "%tools"


def of_track(name: str) -> tuple[str, str]:
    """The thread id and the namespace that a thread's name stands for."""
    name, _, namespace = name.partition(_BETWEEN)
    return name.replace("%23", _BETWEEN).replace("%25", "%"), namespace


def thread_id_in(config: RunnableConfig) -> Any:
    """The thread id of a config as the caller wrote it: LangGraph allows others than texts."""
    return config.get("configurable", {}).get("thread_id")


def thread_id_of(config: RunnableConfig) -> str:
    """The thread id of a config, as text."""
    return checked_thread_id(thread_id_in(config))


def checked_thread_id(given: object) -> str:
    thread_id = given if isinstance(given, str) else "" if given is None else str(given)
    if not thread_id:
        raise InvalidArgument('the config names no thread; give it {"configurable": {"thread_id": "…"}}')
    return thread_id


def namespace_of(config: RunnableConfig) -> str:
    return config.get("configurable", {}).get("checkpoint_ns") or ""


def checkpoint_id_of(config: RunnableConfig) -> str | None:
    return config.get("configurable", {}).get("checkpoint_id") or None


def config_of(thread_id: Any, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id},
    }
