"""The command line, from within and as a process of its own."""
