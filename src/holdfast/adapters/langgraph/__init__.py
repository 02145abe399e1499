"""The adapter for LangGraph: a checkpointer, a journal of tools, and a way to move threads from other savers."""

from holdfast.adapters.langgraph.saver import HoldfastSaver as HoldfastSaver
from holdfast.adapters.langgraph.transfer import migrate as migrate
