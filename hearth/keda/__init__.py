"""What KEDA asks, and what Hearth does where KEDA does not act or is not there.

Lives here: the ExternalScaler service over the two tables, the watchdogs, the built-in scaler;
`tls` lets KEDA in.
May not be here: writes to the demand table, HTTP, and insides of grpclib but in grpc_fast_path.py.
Read first: external_scaler.py, then push_streams.py and watchdog.py.
"""
