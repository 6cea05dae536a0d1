"""The gateway: HTTP requests from clients to the endpoints of services.

Lives here: `routing` decides, `body` reads bodies, `wire` moves bytes; `app` has the routes of the
gateway's own, `errors` every error, `error_messages` most of their words; `observer` is told of
each request.
May not be here: writes to a cluster, KEDA, the settings of the process.
Read first: gateway.py, then wire/.
"""
