"""The drill: a crash lab for your own agent. It kills the agent at every point and checks that it ends the same way."""
