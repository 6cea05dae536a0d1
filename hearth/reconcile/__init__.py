"""What should exist for each LLMService: read, decide, write the difference, report.

Lives here: one pass over one service (`service_reconciler`), what it reads (`caches`), what gateway
and scaler read (`route_publisher`). What decides is in the folders.
May not be here: HTTP, gRPC, the demand of one request.
Read first: service_reconciler.py, then spec/, render/, apply/ and status/, in this order.
"""
