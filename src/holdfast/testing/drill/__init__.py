"""The drill: a crash lab for your own agent. It is killed everywhere, and must come to the same end each time."""
