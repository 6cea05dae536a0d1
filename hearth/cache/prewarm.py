"""Weights that a Job fetches into the cache: from where, to where, and what is written last."""

import hashlib
from dataclasses import dataclass

from hearth.api import llmservice
from hearth.cache import program_texts
from hearth.cache.source import Hub, Source
from hearth.cache.volume import CACHE

STAGING = "/staging"
"""Where a registry's files are pulled to before they are checked."""
_STAGED = f"{STAGING}/model"
_OWN = f"{CACHE}/.hearth"
_THEIR_MARKER = ".noctaya-ready"
_HUBS = (Hub.HUGGING_FACE, Hub.MODELSCOPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prewarm:
    """What one Job fetches."""

    source: str
    """The URI, in its one spelling."""
    marker: str
    """The file that is written last."""
    waits: bool
    """Whether pods wait until the weights are whole."""
    link: str | None = None
    """Of a hub: leads to the folder of the downloaded model."""
    reference: str | None = None
    """Of a registry: what is pulled."""
    target: str | None = None
    """Of a registry: the folder in which the model is served."""
    their_markers: tuple[str, ...] = ()
    """What a Job that another project's controller made writes last."""

    @property
    def program(self) -> str:
        """What `python3 -c` runs."""
        return program_texts.PROMOTE if self.reference else program_texts.DOWNLOAD

    @property
    def env(self) -> dict[str, str]:
        """What the program goes by."""
        paths = {
            "HEARTH_MODEL_LINK": self.link,
            "HEARTH_STAGING": _STAGED if self.target else None,
            "HEARTH_TARGET": self.target,
        }
        given = {name: path for name, path in paths.items() if path is not None}
        return {"HEARTH_SOURCE": self.source, "HEARTH_MARKER": self.marker, **given}

    @property
    def pull_args(self) -> list[str]:
        """Arguments of oras, without credentials."""
        return ["pull", self.reference or "", "--output", _STAGED, "--no-tty"]


def plan(cache: llmservice.Cache, model: Source) -> Prewarm | None:
    """What is to be fetched before an engine starts; None where it fetches by itself, or nothing.

    `cache` and `model` go together: `volume.render` took both.
    """
    if model.hub is Hub.OCI:
        return Prewarm(
            source=model.uri,
            marker=f"{model.path}/.hearth-ready",
            waits=True,
            reference=model.reference,
            target=model.path,
            their_markers=(f"{model.path}/{_THEIR_MARKER}",),
        )
    if model.hub not in _HUBS or not cache.prewarm or cache.strategy == "None":
        return None
    digest = hashlib.sha256(model.uri.encode()).hexdigest()[:16]
    shared = cache.strategy == "SharedPVC"
    return Prewarm(
        source=model.uri,
        marker=f"{_OWN}/ready/{digest}.json",
        # A node's folder is filled on one node only: elsewhere the engine downloads by itself.
        waits=cache.strategy != "HostPath",
        link=f"{_OWN}/models/{digest}",
        their_markers=(f"{CACHE}/{_THEIR_MARKER}",) if shared else (),
    )
