"""An API server in memory: what one does to an object when it is written, read, watched or deleted.

Lives here: versions, defaults, server-side apply, owner references, the history of watches.
May not be here: I/O, tasks and clocks; everything is synchronous, and the time is an argument.
Read first: store.py.
"""
