"""LangGraph keeps its checkpoints in Holdfast: `HoldfastSaver` is a checkpointer for any graph."""

from holdfast.adapters.langgraph.saver import HoldfastSaver as HoldfastSaver
