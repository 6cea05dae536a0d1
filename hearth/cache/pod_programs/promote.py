"""Put what was pulled into HEARTH_STAGING at HEARTH_TARGET, with HEARTH_MARKER, or not at all.

Who made the artifact is not trusted: only folders and plain files with one name come over. They are
copied beside the target, the marker with them as the last, and take its place by one rename. What
fails is one line on stderr.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import shutil
import signal
import stat
import sys
import uuid

THEIRS = ".noctaya-ready"
"""The marker of the controller that Hearth may have followed in this namespace."""
KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a fifo"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)


class RefusedError(Exception):
    """What another attempt does not mend."""


def plain_files(folder: str, markers: set[str]) -> list[str]:
    """Every file in it, by its path from there; raises RefusedError for what may not be there."""
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        raise RefusedError(f"{folder} is no folder")
    found, rest = [], [""]
    while rest:
        here = rest.pop()
        for name in sorted(os.listdir(os.path.join(folder, here))):
            path = os.path.join(here, name)
            what = os.lstat(os.path.join(folder, path))
            for is_kind, kind in KINDS:
                if is_kind(what.st_mode):
                    refuse(path, kind)
            if path in markers:
                refuse(path, "a marker, which only Hearth writes")
            if stat.S_ISDIR(what.st_mode):
                rest.append(path)
            elif what.st_nlink > 1:
                refuse(path, "a hard link")
            else:
                found.append(path)
    return found


def refuse(path: str, kind: str) -> None:
    raise RefusedError(f"{path}: {kind}; only folders and plain files may be in a model")


def copy(source: str, target: str) -> int:
    """Its bytes, which are on the disk then; the mode is what this process gives new files."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as pulled:
        what = os.fstat(pulled.fileno())
        if not stat.S_ISREG(what.st_mode) or what.st_nlink > 1:
            raise RefusedError(f"{source} changed while it was copied")
        with open(target, "xb") as file:
            shutil.copyfileobj(pulled, file, 1 << 24)
            file.flush()
            os.fsync(file.fileno())
    return what.st_size


def sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: str, content: dict[str, object]) -> None:
    partial = f"{path}.{uuid.uuid4().hex}"
    with open(partial, "x") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(partial, path)


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def clear(target: str, marker: str, partial: str) -> bool:
    """Take away what unfinished runs left; whether another run has finished meanwhile.

    All is moved before it is removed: a run that still works finds its folder gone, and cannot put
    one that lost files at the target.
    """
    aside = partial + "-old"
    for path in (*glob.glob(glob.escape(target) + ".partial-*"), target):
        try:
            os.rename(path, aside)
        except FileNotFoundError:
            continue
        if path == target and os.path.isfile(aside + marker[len(target) :]):
            os.rename(aside, target)
            return True
        remove(aside)
    return False


def promote(source: str, staging: str, target: str, marker: str) -> str:
    """What was done, in words."""
    inside = os.path.relpath(marker, target)
    if os.path.isfile(os.path.join(target, THEIRS)) and not os.path.islink(target):
        # Promoted before Hearth came: it is whole, and may be served from at this moment.
        write(marker, describe(source, target))
        sync(target)
        return f"{target} was whole already"
    files = plain_files(staging, {inside, THEIRS})
    if not files:
        raise RefusedError(f"nothing was pulled into {staging}")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    partial = f"{target}.partial-{uuid.uuid4().hex}"
    if clear(target, marker, partial):
        return f"{target} is whole"
    try:
        for path in files:
            copy(os.path.join(staging, path), os.path.join(partial, path))
        for folder, _, _ in os.walk(partial):
            sync(folder)
        write(os.path.join(partial, inside), describe(source, partial))
        sync(partial)
        os.rename(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        if os.path.isfile(marker):
            return f"{target} is whole: another run was first"
        raise
    sync(os.path.dirname(target))
    return f"{target} is whole: {len(files)} files"


def describe(source: str, folder: str) -> dict[str, object]:
    sizes = [
        os.lstat(os.path.join(where, name)).st_size
        for where, _, names in os.walk(folder)
        for name in names
    ]
    revision = source.rpartition("@")[2]
    return {"source": source, "revision": revision, "files": len(sizes), "bytes": sum(sizes)}


def main() -> None:
    # The first process of a container ends by no signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    staging, target = os.environ["HEARTH_STAGING"], os.environ["HEARTH_TARGET"]
    marker = os.environ["HEARTH_MARKER"]
    if os.path.isfile(marker):
        return
    try:
        print(promote(os.environ["HEARTH_SOURCE"], staging, target, marker), flush=True)
    except RefusedError as error:
        sys.exit(" ".join(str(error).split()))
    except OSError as error:
        advice = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            where = target
            while not os.path.isdir(where):
                where = os.path.dirname(where)
            free = shutil.disk_usage(where).free
            advice = f" ({free / 1e9:.1f} GB free): give the cache more"
        elif isinstance(error, PermissionError):
            advice = f": uid {os.getuid()} may not; let fsGroup or runAsUser own the volumes"
        elif isinstance(error, (NotADirectoryError, FileExistsError)):
            advice = ": a file stands where a folder should be; remove it"
        sys.exit(" ".join(f"cannot put the model at {target}: {error}{advice}".split()))


if __name__ == "__main__":
    main()
