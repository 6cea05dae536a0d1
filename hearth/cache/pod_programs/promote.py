"""Put what was pulled into HEARTH_STAGING at HEARTH_TARGET, and write HEARTH_MARKER last."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys


def check(staging: str) -> None:
    """Only folders and plain files may come; exits with the first that is neither."""
    for folder, folders, files in os.walk(staging):
        for name in folders + files:
            path = os.path.join(folder, name)
            found = os.lstat(path)
            whole = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
            if not (whole or stat.S_ISDIR(found.st_mode)):
                told = os.path.relpath(path, staging)
                sys.exit(f"{told}: only folders and plain files may be in a model")


def main() -> None:
    staging, target = os.environ["HEARTH_STAGING"], os.environ["HEARTH_TARGET"]
    marker = os.environ["HEARTH_MARKER"]
    if os.path.isfile(marker):
        return
    check(staging)
    partial = f"{target}.partial-{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copytree(staging, partial)
        if os.path.isdir(target):
            shutil.rmtree(target)
        os.rename(partial, target)
        with open(marker + ".partial", "w") as file:
            json.dump({"source": os.environ.get("HEARTH_SOURCE", "")}, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(marker + ".partial", marker)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        sys.exit(f"{target}: {error}")


if __name__ == "__main__":
    main()
