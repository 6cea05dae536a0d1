"""From desired and observed objects to writes, and the writes themselves.

Lives here: whose an object is (`ownership`), whether it differs (`drift`), what to write (`plan`).
May not be here: I/O but through the Cluster in execute.py and cleanup.py; what objects should look
like.
Read first: plan.py.
"""
