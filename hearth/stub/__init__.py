"""A small OpenAI-compatible engine, for demos and tests: it loads, answers and fails as told.

Lives here: a program of its own, which runs as a pod's process.
May not be here: anything of Hearth's gateway; the stub is what stands behind it.
Read first: server.py, then turn.py; options.py has what it can be told.
"""
