"""HTTP/1.1 as bytes: connections of clients, connections to endpoints, and what passes between.

No decision about routes stands here (that is `routing`), and no cluster.  Read `front`, `visit`,
`turn` and `link`, in this order.
"""
