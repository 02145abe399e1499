"""The command line: a module for each group of commands, imported when one of its commands is called."""
