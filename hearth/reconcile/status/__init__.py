"""What is observed of a service's backend, as its status and its Events tell it.

Lives here: pods to facts (`observation`), why they fail (`pod_failures`), conditions (`status`).
May not be here: I/O but through the Cluster for Events; what should exist.
Read first: observation.py, then status.py.
"""
