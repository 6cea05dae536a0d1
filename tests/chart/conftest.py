"""The chart as Helm renders it, by whichever Helm is here."""

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import require

CHART = Path(__file__).parents[2] / "charts" / "hearth"
RELEASE, NAMESPACE = "hearth", "hearth-system"


def _program(name: str) -> str:
    found = os.environ.get(name.upper()) or shutil.which(name) or ""
    require(name, bool(found), f"put it on the PATH, or set {name.upper()} to its path")
    return found


@functools.lru_cache
def _run(program: str, release: str, values: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, "template", release, CHART, "--namespace", NAMESPACE, "--values", "-",
         "--kube-version", "1.34.0"],
        input=values, capture_output=True, text=True,
    )  # fmt: skip


@functools.lru_cache
def _documents(text: str) -> list[dict]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, Loader=loader) if document]


class Helm:
    """One Helm program, and what it makes of the chart."""

    def __init__(self, name: str) -> None:
        self.program = _program(name)

    def template(self, release: str = RELEASE, **values) -> subprocess.CompletedProcess[str]:
        return _run(self.program, release, json.dumps(values))

    def render(self, release: str = RELEASE, **values) -> list[dict]:
        """The rendered objects, CRDs left out unless asked for."""
        values.setdefault("crds", {"install": False})
        done = self.template(release, **values)
        assert done.returncode == 0, done.stderr
        return _documents(done.stdout)

    def refused(self, release: str = RELEASE, **values) -> str:
        """Why these values are refused."""
        done = self.template(release, **values)
        assert done.returncode != 0, done.stdout[:500]
        return done.stderr


def one(documents: list[dict], kind: str, name: str = RELEASE) -> dict:
    [found] = [d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name]
    return found


def kinds(documents: list[dict]) -> set[str]:
    return {document["kind"] for document in documents}


@pytest.fixture(params=["helm", "helm3"])
def each_helm(request) -> Helm:
    """Every version that is supported."""
    return Helm(request.param)


@pytest.fixture
def helm() -> Helm:
    """One of them: what they render is compared elsewhere."""
    return Helm("helm")
