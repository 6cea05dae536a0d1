"""What a Job fetches into the cache."""

import hashlib
from typing import Any

import pytest

from hearth.api.llmservice import Cache
from hearth.cache import prewarm, program_texts, source

DIGEST = "0" * 64
OCI = f"oci://registry/repo@sha256:{DIGEST}"


def plan(uri: str, **cache: Any) -> prewarm.Prewarm | None:
    return prewarm.plan(Cache.model_validate(cache), source.parse(uri))


@pytest.mark.parametrize(
    ("strategy", "waits", "theirs"),
    [
        ("NodeLocalPVC", True, ()),
        ("SharedPVC", True, ("/cache/.noctaya-ready",)),
        ("HostPath", False, ()),
    ],
)
def test_the_model_of_a_hub(strategy: str, waits: bool, theirs: tuple[str, ...]):
    got = plan("huggingface://org/model", strategy=strategy, prewarm=True)
    digest = hashlib.sha256(b"hf://org/model").hexdigest()[:16]
    assert got == prewarm.Prewarm(
        source="hf://org/model",
        marker=f"/cache/.hearth/ready/{digest}.json",
        waits=waits,
        link=f"/cache/.hearth/models/{digest}",
        their_markers=theirs,
    )
    assert got.program == program_texts.DOWNLOAD
    assert got.env == {
        "HEARTH_SOURCE": "hf://org/model",
        "HEARTH_MARKER": f"/cache/.hearth/ready/{digest}.json",
        "HEARTH_MODEL_LINK": f"/cache/.hearth/models/{digest}",
    }


@pytest.mark.parametrize("strategy", ["NodeLocalPVC", "SharedPVC", "HostPath"])
@pytest.mark.parametrize("asked", [True, False])
def test_the_model_of_a_registry_is_always_pulled(strategy: str, asked: bool):
    got = plan(OCI, strategy=strategy, prewarm=asked)
    folder = f"/cache/oci/sha256-{DIGEST}"
    assert got == prewarm.Prewarm(
        source=OCI,
        marker=f"{folder}/.hearth-ready",
        waits=True,
        reference=OCI.removeprefix("oci://"),
        target=folder,
        their_markers=(f"{folder}/.noctaya-ready",),
    )
    assert got.program == program_texts.PROMOTE
    assert got.env == {
        "HEARTH_SOURCE": OCI,
        "HEARTH_MARKER": f"{folder}/.hearth-ready",
        "HEARTH_STAGING": "/staging/model",
        "HEARTH_TARGET": folder,
    }
    assert got.pull_args == [
        "pull", OCI.removeprefix("oci://"), "--output", "/staging/model", "--no-tty"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("uri", "cache"),
    [
        ("hf://org/model", {}),
        ("hf://org/model", {"strategy": "None", "prewarm": True}),
        ("pvc://weights", {"prewarm": True}),
    ],
)
def test_nothing_is_fetched(uri: str, cache: dict[str, Any]):
    assert plan(uri, **cache) is None


def test_each_model_has_a_marker_of_its_own():
    a, b = (plan(f"{hub}://org/model", prewarm=True) for hub in ("hf", "modelscope"))
    assert a.marker != b.marker
