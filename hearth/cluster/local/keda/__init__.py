"""KEDA's stand-in: ScaledObjects become numbers of replicas.

Lives here: what a ScaledObject asks for, what its status says, and the calls to the scaler that it
names.
May not be here: the demand table: it is asked over gRPC, as KEDA would; arithmetic
(cluster/autoscaler).
Read first: scaled_objects.py.
"""
