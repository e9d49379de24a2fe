"""One module a command: it parses arguments, calls one library function, writes, reports one line.

Imports that cost time are made where they are used: `--help` must come at once.
"""
