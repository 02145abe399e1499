"""The LangGraph adapter: `HoldfastSaver` is a checkpointer for any graph."""

from holdfast.adapters.langgraph.saver import HoldfastSaver as HoldfastSaver
