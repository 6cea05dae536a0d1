"""Wait until weights are whole: until one of the files in HEARTH_WAIT_FOR is there.

Several files are separated by a colon.  A mounted volume tells nobody of new files, so it is looked
at once a second; what is waited for is printed at once, then each minute.
"""

from __future__ import annotations

import os
import signal
import sys
import time


def main() -> None:
    # The first process of a container ends by no signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    markers = [path for path in os.environ["HEARTH_WAIT_FOR"].split(":") if path]
    # The first process of a container has no default for it, and would use up the grace period.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    said_at = None
    while not any(os.path.isfile(path) for path in markers):
        now = time.monotonic()
        if said_at is None or now - said_at >= 60:
            said_at = now
            print("waits until the weights are whole: for {}".format(" or ".join(markers)))
            sys.stdout.flush()
        time.sleep(1)


if __name__ == "__main__":
    main()
