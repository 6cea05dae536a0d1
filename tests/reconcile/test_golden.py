"""`hearth render` prints the golden file of every example.  UPDATE_GOLDEN=1 writes them anew."""

import os
from pathlib import Path

import pytest
import yaml

from hearth import render
from hearth.reconcile.render.release import Release
from hearth.stub import options

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_renders_as_ever(example: Path):
    text = render.text([str(example)], release=Release(), piped=bytes)
    golden = GOLDEN / example.name
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_the_readme_s_manifest_is_whole():
    readme = (EXAMPLES[0].parents[1] / "README.md").read_text()
    _, _, rest = readme.partition("```yaml\n")
    manifest, _, _ = rest.partition("```")
    text = render.text(["-"], release=Release(), piped=manifest.encode)
    assert "image: vllm/vllm-openai" in text
    assert "kind: ScaledObject" in text


def test_there_is_an_example_for_each_golden_file():
    assert sorted(path.name for path in GOLDEN.glob("*.yaml")) == [p.name for p in EXAMPLES]


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_stub_understands_what_it_is_told(golden: Path):
    for manifest in yaml.safe_load_all(golden.read_text()):
        if manifest["kind"] == "Deployment":
            container = manifest["spec"]["template"]["spec"]["containers"][0]
            if container["args"][0] == "stub":
                options.parse(container["args"][1:])
