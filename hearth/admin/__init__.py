"""The admin port: health, readiness, metrics, the demand table and the status page.

Lives here: the page, the document behind it, who is told of its changes, and who may read it.
May not be here: writes to a table or a cluster; anything that clients of the gateway ask for.
Read first: server.py, then document.py.
"""
