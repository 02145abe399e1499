"""Adapters for model providers and agent frameworks. Only the adapter of a framework imports its package."""
