"""Why an address cannot be listened on."""

import errno

import pytest

from hearth import listening


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EADDRINUSE, "x"), "the port is in use; stop what listens there"),
        (OSError(errno.EACCES, "x"), "not permitted; choose a port from 1024 on"),
        (OSError(errno.EADDRNOTAVAIL, "x"), "this machine has no such address"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (UnicodeError("label too long"), "label too long"),
    ],
)
def test_why(error, words):
    assert listening.why(error).startswith(words)
