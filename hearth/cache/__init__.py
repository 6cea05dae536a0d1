"""How weights get to a pod.

Lives here: a model URI and what it stands for, a cache strategy and the volumes that it makes.
May not be here: I/O, and any download: the engine does that.
Read first: source.py, then volume.py.
"""
