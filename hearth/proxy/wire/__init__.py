"""HTTP/1.1 as bytes: connections of clients, connections to endpoints, and what passes between.

Lives here: parsing, framing, relaying, timers, the pool of upstream connections.
May not be here: decisions about routes (that is `routing`), and any cluster.
Read first: client_connection.py, request.py, exchange.py and upstream_connection.py, in this order.
"""
