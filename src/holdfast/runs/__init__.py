"""Durable execution of agents: claims, steps, calls, waits, workers."""
