"""Files and folders as the source of what should exist.

Lives here: reading manifests, watching their files, and what becomes of an object that left its
file.
May not be here: what is valid (that is api/'s), what an API server makes of it.
Read first: files.py.
"""
