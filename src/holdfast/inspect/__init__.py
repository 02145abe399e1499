"""Read-only views of a store for the command line, the web UI and exporters."""
