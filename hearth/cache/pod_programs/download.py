"""Fetch the model HEARTH_SOURCE into the cache, and write HEARTH_MARKER once it is whole.

The hub's own library downloads, and goes on where a run before it was killed. Then every file is
compared with the hub's list; only then is the marker written. HEARTH_MODEL_LINK becomes a link to
the model's folder. What fails is one line on stderr. HEARTH_RETRY_PAUSE_S (2) is the first pause
after a lost connection; each further one is twice as long.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import uuid
import warnings
from typing import Any, Iterable, Iterator
from urllib.parse import urlsplit

ATTEMPTS = 8
LONGEST_PAUSE_S = 60.0
IDLE_S = 300.0
"""So long may another run leave the cache unchanged before it is taken for dead."""


class FailedError(Exception):
    """What another attempt does not mend."""


class WrongSizeError(Exception):
    """A file is not as large as the hub says; its removal makes the next attempt fetch it."""


class HuggingFace:
    def __init__(self, model: str, cache: str) -> None:
        # An engine may be told to stay offline: what it serves comes from here.
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            os.environ.pop(name, None)
        import huggingface_hub
        from huggingface_hub import constants

        self.library: Any = huggingface_hub
        self.model = model
        self.host = urlsplit(str(constants.ENDPOINT)).netloc
        self.token = "HF_TOKEN"
        self.folder = str(constants.HF_HUB_CACHE)
        inside(self.folder, cache, "HF_HOME and HF_HUB_CACHE")

    def clean(self) -> None:
        name = "models--" + self.model.replace("/", "--")
        shutil.rmtree(os.path.join(self.folder, ".locks", name), ignore_errors=True)
        for path in files(os.path.join(self.folder, name, "blobs")):
            # Newer libraries begin such a file anew each time; older ones go on with theirs.
            if re.search(r"\.[0-9a-f]{8}\.incomplete\Z", path):
                os.unlink(path)

    def start_over(self) -> None:
        blobs = os.path.join(self.folder, "models--" + self.model.replace("/", "--"), "blobs")
        for path in files(blobs):
            if path.endswith(".incomplete"):
                os.unlink(path)

    def fetch(self) -> tuple[str, str, dict[str, int | None]]:
        api = self.library.HfApi()
        info = api.model_info(self.model, files_metadata=True)
        check_names(one.rfilename for one in info.siblings)
        folder = str(self.library.snapshot_download(self.model))
        revision = os.path.basename(folder)
        if revision != info.sha:
            info = api.model_info(self.model, revision=revision, files_metadata=True)
        return revision, folder, {one.rfilename: one.size for one in info.siblings}


class ModelScope:
    def __init__(self, model: str, cache: str) -> None:
        from modelscope.hub.api import HubApi
        from modelscope.hub.snapshot_download import snapshot_download

        self.model = model
        self.api: Any = HubApi()
        self.download: Any = snapshot_download
        self.logged_in = False
        self.token = "MODELSCOPE_API_TOKEN"
        self.folder = os.environ.get("MODELSCOPE_CACHE") or os.path.expanduser("~/.cache")
        inside(self.folder, cache, "MODELSCOPE_CACHE")
        named = [os.environ.get("MODELSCOPE_" + name) for name in ("ENDPOINT", "DOMAIN")]
        endpoint = next(filter(None, named), "www.modelscope.cn")
        self.host = urlsplit(endpoint).netloc or endpoint

    def clean(self) -> None:
        shutil.rmtree(os.path.join(self.folder, ".lock"), ignore_errors=True)

    def start_over(self) -> None:
        for path in files(self.folder):
            if path.endswith(".incomplete"):
                os.unlink(path)

    def fetch(self) -> tuple[str, str, dict[str, int | None]]:
        api, token = self.api, os.environ.get(self.token)
        if hasattr(api, "resolve_endpoint_for_read"):
            api = type(api)(endpoint=api.resolve_endpoint_for_read(self.model))
        elif token and not self.logged_in:
            # Libraries before 1.38 know a token only after this.
            api.login(token)
            self.logged_in = True
        listed = api.get_model_files(self.model, recursive=True, use_cookies=self.logged_in)
        sizes = {str(one["Path"]): one.get("Size") for one in listed}
        check_names(sizes)
        for folder in {os.path.dirname(name) for name in sizes}:
            while folder:
                sizes.pop(folder, None)
                folder = os.path.dirname(folder)
        return "master", str(self.download(self.model)), sizes


def inside(folder: str, cache: str, names: str) -> None:
    if not (os.path.realpath(folder) + os.sep).startswith(os.path.realpath(cache) + os.sep):
        raise FailedError(
            f"the weights would go to {folder}, which is not in the cache {cache}:"
            f" take {names} out of the runtime's env"
        )


def check_names(names: Iterable[str]) -> None:
    """Raises FailedError for a list that is no model's, before anything is fetched by it."""
    listed = list(names)
    if not listed:
        raise FailedError("the hub lists no files of this model")
    for name in listed:
        if os.path.isabs(name) or ".." in name.split("/"):
            raise FailedError(f"the hub lists {name!r}, which leads out of the model's folder")


def files(folder: str) -> Iterator[str]:
    for where, _, names in os.walk(folder):
        for name in names:
            yield os.path.join(where, name)


def compare(folder: str, sizes: dict[str, int | None]) -> int:
    """All bytes of a model whose files are as large as the hub says, and on the disk."""
    total = 0
    for name, size in sizes.items():
        path = os.path.join(folder, name)
        found = os.path.getsize(path) if os.path.isfile(path) else None
        if found is None or size not in (None, found):
            for one in {os.path.realpath(path), path}:
                if os.path.lexists(one):
                    os.unlink(one)
            raise WrongSizeError(
                f"{name} has {'no' if found is None else found} bytes, and {size} by the hub's list"
            )
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        total += found
    return total


def explain(error: BaseException, hub: Any, cache: str) -> tuple[str, bool]:
    """An error in words, and whether another attempt may mend it."""
    chain: list[BaseException] = []
    rest: list[BaseException | None] = [error]
    while rest:
        one = rest.pop(0)
        if one is not None and one not in chain:
            chain.append(one)
            rest += [one.__cause__, one.__context__, *getattr(one, "failed_files", {}).values()]
    text = " ".join(" ".join(str(one) for one in chain).split())
    codes = {getattr(one, "errno", None) for one in chain}
    responses = [getattr(one, "response", None) for one in chain] + chain
    found = [getattr(one, "status_code", None) for one in responses]
    status = next((code for code in found if code), None)
    if codes & {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} or "No space left" in text:
        free = shutil.disk_usage(cache).free
        return f"no space left in {cache} ({free / 1e9:.1f} GB free): give the cache more", False
    for one in chain:
        if isinstance(one, PermissionError) or getattr(one, "errno", None) == errno.EROFS:
            return (
                f"uid {os.getuid()} may not write there: {one};"
                " let the pods' fsGroup or runAsUser own the cache"
            ), False
    if status == 401:
        return (
            f"401 from {hub.host}: the token is missing or may not read {hub.model}, or there is"
            f" no such model; set {hub.token} in the runtime's env (valueFrom a Secret)"
        ), False
    if status == 403:
        return (
            f"403 from {hub.host}: the account of {hub.token} may not read {hub.model}: ask for"
            f" access on its page, or use a token that has it"
        ), False
    if status in (404, 410):
        return f"404 from {hub.host}: there is no {hub.model}, or the token may not see it", False
    names = " ".join(type(one).__name__ for one in chain)
    if isinstance(error, WrongSizeError) or re.search(
        "Mismatch|Integrity|Consistency", names + text
    ):
        return f"wrong size from {hub.host}: {first_line(error)}", True
    if "Validation" in names:
        return f"{hub.host} can have no model of that name: {first_line(error)}", False
    if status:
        return f"{status} from {hub.host} for {hub.model}", True
    if re.search("Conn|Timeout|Network|Proxy|SSL|Protocol|Chunked|Incomplete|gaierror", names):
        last = chain[-1]
        return f"{hub.host} cannot be reached: {type(last).__name__}: {first_line(last)}", True
    return f"{type(error).__name__}: {first_line(error)}", True


def first_line(error: BaseException) -> str:
    """What happened; libraries go on with what one might do to them."""
    return str(error).strip().partition("\n")[0]


def complete(hub: Any, cache: str) -> tuple[str, str, int, int]:
    """Revision, folder, number of files and bytes of the whole model."""
    pause_s = float(os.environ.get("HEARTH_RETRY_PAUSE_S", "2"))
    wrong = 0
    for left in reversed(range(ATTEMPTS)):
        try:
            revision, folder, sizes = hub.fetch()
            return revision, folder, len(sizes), compare(folder, sizes)
        except FailedError:
            raise
        except Exception as error:
            words, again = explain(error, hub, cache)
            wrong += words.startswith(("wrong size", "416"))
            if not again or not left or wrong > 2:
                raise FailedError(words) from None
            if wrong:
                hub.start_over()
            say(f"{words}; tries again in {pause_s:g} s")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    raise AssertionError


def alone(marker: str, cache: str) -> None:
    """Wait while another run writes here; the lock goes with the process that has it."""
    try:
        lock = os.open(marker + ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError:
        return  # Another user's.
    seen, since = None, 0.0
    while not os.path.isfile(marker):
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        except OSError:
            return  # This volume has no locks.
        try:
            now = [(path, os.lstat(path).st_size) for path in files(cache)]
        except FileNotFoundError:
            now = []  # Moved in between: it writes.
        if now != seen:
            if seen is None:
                say("waits for another run that writes to this cache")
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > IDLE_S:
            return say("the other run writes nothing any more: goes on without it")
        time.sleep(1)


def write(path: str, content: dict[str, object]) -> None:
    partial = f"{path}.{uuid.uuid4().hex}"
    with open(partial, "w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(partial, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def link(path: str, folder: str) -> None:
    where = os.path.dirname(path)
    os.makedirs(where, exist_ok=True)
    partial = f"{path}.{uuid.uuid4().hex}"
    os.symlink(os.path.relpath(os.path.realpath(folder), os.path.realpath(where)), partial)
    os.replace(partial, path)


def say(words: object) -> None:
    print(line(words), flush=True)


def line(words: object) -> str:
    """One line, without the secrets of the environment."""
    text = " ".join(str(words).split())[:1500]
    for name, value in os.environ.items():
        if re.search("TOKEN|KEY|SECRET|PASSWORD", name) and len(value) > 3:
            text = text.replace(value, "***")
    return text


def main() -> None:
    # The first process of a container ends by no signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    source, marker = os.environ["HEARTH_SOURCE"], os.environ["HEARTH_MARKER"]
    if os.path.isfile(marker):
        return
    cache = os.path.dirname(os.path.dirname(os.path.dirname(marker)))
    scheme, _, model = source.partition("://")
    hub: Any = None
    # What is told is told here, in a line each.
    for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "TQDM_DISABLE"):
        os.environ.setdefault(name, "1")
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    try:
        if not os.access(os.path.expanduser("~"), os.W_OK):
            os.environ["HOME"] = tempfile.gettempdir()
        os.makedirs(os.path.dirname(marker), exist_ok=True)
        alone(marker, cache)
        if os.path.isfile(marker):
            return
        hub = (ModelScope if scheme == "modelscope" else HuggingFace)(model, cache)
        hub.clean()
        say(f"fetches {model} from {hub.host}")
        revision, folder, count, size = complete(hub, cache)
        if os.environ.get("HEARTH_MODEL_LINK"):
            link(os.environ["HEARTH_MODEL_LINK"], folder)
        content = {"source": source, "revision": revision, "files": count, "bytes": size}
        write(marker, content)
        say(f"{model} at {revision} is whole: {count} files, {size} bytes")
    except FailedError as error:
        sys.exit(line(error))
    except ImportError as error:
        sys.exit(
            line(
                f"this image cannot import what downloads from {scheme}:// ({error}): use one"
                " that has it, or fill a claim and use pvc://"
            )
        )
    except Exception as error:
        sys.exit(line(explain(error, hub, cache)[0]))


if __name__ == "__main__":
    main()
