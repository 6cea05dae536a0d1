"""Fetch the model HEARTH_SOURCE into the cache, and write HEARTH_MARKER once it is whole."""

from __future__ import annotations

import json
import os
import sys


def fetch(source: str) -> str:
    """Download with the hub's own library, which resumes; the folder of the model's files."""
    scheme, _, model = source.partition("://")
    if scheme == "modelscope":
        from modelscope import snapshot_download as modelscope_download

        return str(modelscope_download(model))
    from huggingface_hub import snapshot_download

    return str(snapshot_download(model))


def mark(path: str, content: dict[str, object]) -> None:
    """Write the marker so that it is there whole, or not at all."""
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    partial = f"{path}.{os.getpid()}"
    with open(partial, "w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(partial, path)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def main() -> None:
    source, marker = os.environ["HEARTH_SOURCE"], os.environ["HEARTH_MARKER"]
    if os.path.isfile(marker):
        return
    try:
        folder = fetch(source)
        link = os.environ.get("HEARTH_MODEL_LINK")
        if link:
            os.makedirs(os.path.dirname(link), exist_ok=True)
            if os.path.islink(link):
                os.unlink(link)
            os.symlink(os.path.relpath(folder, os.path.dirname(link)), link)
        mark(marker, {"source": source, "revision": os.path.basename(folder)})
    except Exception as error:
        sys.exit("{}: {}: {}".format(source, type(error).__name__, " ".join(str(error).split())))


if __name__ == "__main__":
    main()
