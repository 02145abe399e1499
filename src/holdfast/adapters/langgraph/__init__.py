"""The adapter for LangGraph: a checkpointer, a journal of tools, and a way to move threads from other savers."""

from holdfast.adapters.langgraph.saver import HoldfastSaver as HoldfastSaver
from holdfast.adapters.langgraph.saver_migration import migrate as migrate
from holdfast.adapters.langgraph.tool_wrapper import tools_thread as tools_thread
from holdfast.adapters.langgraph.tool_wrapper import wrap_tools as wrap_tools
