"""The adapter for a real cluster: the interface's verbs as requests to an API server.

Lives here: credentials, proxies, deadlines, retries, the bytes of a watch, errors of an API server.
May not be here: typed objects of the client library (they lose fields); imports of it but in
credentials.py.
Read first: cluster.py, then transport.py.
"""
