"""The programs of pods, as the text that `python3 -c` gets."""

from importlib import resources
from typing import Final

_FOLDER = resources.files("hearth.cache.pod_programs")

DOWNLOAD: Final = _FOLDER.joinpath("download.py").read_text(encoding="utf-8")
"""Fetches a hub's model into the cache."""
PROMOTE: Final = _FOLDER.joinpath("promote.py").read_text(encoding="utf-8")
"""Puts a pulled model into the cache."""
WAIT: Final = _FOLDER.joinpath("wait.py").read_text(encoding="utf-8")
"""Ends once the weights are whole."""
