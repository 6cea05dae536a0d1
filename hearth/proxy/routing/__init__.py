"""Which service a request is for, whether its sender may use it, and which endpoint serves it.

Lives here: hosts, paths, models, keys, admission, the queue for endpoints, their choice.
May not be here: sockets but those of `readiness_prober` and `upstream_models`, Secrets but through
`api_keys` and `engine_keys`, anything of `wire`.
Read first: admission.py, then endpoint_queue.py.
"""
