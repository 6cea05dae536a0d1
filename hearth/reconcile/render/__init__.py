"""The objects that should exist for one service, as dict literals.

Lives here: every object that Hearth writes, and the strings in it that are Go templates.
May not be here: I/O; what the cluster holds (that is apply/'s), what pods do (that is status/'s).
Read first: desired.py, then deployment.py.
"""
