"""The gateway: HTTP requests from clients to the endpoints of services.

`routing` decides, `body` reads bodies, `wire` moves bytes, `app` has the routes of the gateway's
own, and `errors` every error.  Nothing here writes to a cluster or knows KEDA.  Read `gateway`
first, then `wire`.
"""
