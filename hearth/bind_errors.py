"""Why a port cannot be opened, and what to do about it."""

import errno


def explain(error: OSError | UnicodeError) -> str:
    """The reason, and what to do; the event loop's own words repeat the address."""
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            return "the port is in use; stop what listens there or choose another port"
        case errno.EACCES:
            return "not permitted; choose a port from 1024 on"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address"
        case _:
            return str(getattr(error, "strerror", None) or error)
