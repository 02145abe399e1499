"""What the command line and the page show of a store: records and functions on a handle, no terminal and no HTML."""
