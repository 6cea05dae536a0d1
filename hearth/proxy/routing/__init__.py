"""Which service a request is for, whether its sender may use it, and which endpoint serves it.

No sockets but those of `readiness_prober`, no Secrets but through `api_keys` and `engine_keys`,
and nothing of `wire`.  Read `admission` first, then `endpoint_queue`.
"""
