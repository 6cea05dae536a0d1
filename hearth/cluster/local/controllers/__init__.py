"""The controllers that every cluster has: Deployments and Jobs become Pods.

Lives here: rollouts, and which pod is started or stopped next; only `controllers` awaits.
May not be here: processes (that is kubelet/'s), the number of replicas (that is keda/'s).
Read first: controllers.py, then deployments.py.
"""
