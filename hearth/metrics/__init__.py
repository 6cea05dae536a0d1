"""Every metric: its name, its meaning, and where its value comes from.

Lives here: the table of instruments, from which docs/metrics.md is generated too, and the registry.
May not be here: prometheus_client but in prometheus.py; decisions.
Read first: instruments.py.
"""
