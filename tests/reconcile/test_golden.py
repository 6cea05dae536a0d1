"""Every example renders to its golden file.  UPDATE_GOLDEN=1 writes them anew."""

import os
from pathlib import Path

import pytest
import yaml

from hearth.api import manifests
from hearth.api.llmservice import LLMService
from hearth.api.runtime import InferenceRuntime
from hearth.reconcile import desired, selection
from hearth.reconcile.site import Site
from hearth.stub import options

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
GOLDEN = Path(__file__).parent / "golden"


def render(example: Path) -> str:
    parsed = manifests.parse(example.read_text(), file=example.name)
    assert [str(problem) for problem in parsed.problems] == []
    kinds = {"LLMService": LLMService, "InferenceRuntime": InferenceRuntime}
    models = [kinds[m["kind"]].model_validate(m) for m in parsed.manifests if m["kind"] in kinds]
    services = [model for model in models if isinstance(model, LLMService)]
    runtimes = [model for model in models if isinstance(model, InferenceRuntime)]
    objects = [
        manifest
        for service in services
        for manifest in desired.render(
            service, selection.pick(service, runtimes), site=Site()
        ).manifests
    ]
    owners = [m for m in parsed.manifests if m["kind"] == "LLMService"]
    objects.append(desired.render_shared("default", owners, site=Site()))
    return yaml.safe_dump_all(objects, sort_keys=False, width=100)


@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_renders_as_ever(example: Path):
    text = render(example)
    golden = GOLDEN / example.name
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_there_is_an_example_for_each_golden_file():
    assert sorted(path.name for path in GOLDEN.glob("*.yaml")) == [p.name for p in EXAMPLES]


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_stub_understands_what_it_is_told(golden: Path):
    for manifest in yaml.safe_load_all(golden.read_text()):
        if manifest["kind"] == "Deployment":
            container = manifest["spec"]["template"]["spec"]["containers"][0]
            if container["args"][0] == "stub":
                options.parse(container["args"][1:])
