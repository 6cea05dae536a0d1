"""How many replicas: KEDA's decisions and the HPA's, for any target and any source of demand.

Lives here: the arithmetic (`algorithms`), the loops around it (`engine`), and what they say of
themselves.
May not be here: gRPC, ScaledObjects, the demand table: a source and a target stand for them.
Read first: algorithms.py, then engine.py.
"""
