"""`hearth render` prints the golden file of every example.  UPDATE_GOLDEN=1 writes them anew."""

import os
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from hearth import render
from hearth.api import groups, rules, schema
from hearth.cache import program_texts
from hearth.reconcile.render.release import Release
from hearth.stub import options

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.rglob("*.yaml"))
FROM_REFERENCES = sorted((FOLDER / "vllm").glob("*.yaml"))
"""Those in the form that users of the references have."""
NAMES = [str(path.relative_to(FOLDER)) for path in EXAMPLES]
GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    """A program of a pod has tests of its own: a change of one is none of every golden file."""
    for name in ("DOWNLOAD", "PROMOTE", "WAIT"):
        monkeypatch.setattr(program_texts, name, f"the text of {name.lower()}.py")


@pytest.mark.parametrize("name", NAMES)
def test_renders_as_ever(name: str):
    text = render.text([str(FOLDER / name)], release=Release(), piped=bytes)
    golden = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_the_readme_s_manifest_is_whole():
    readme = (FOLDER.parent / "README.md").read_text()
    _, _, rest = readme.partition("```yaml\n")
    manifest, _, _ = rest.partition("```")
    text = render.text(["-"], release=Release(), piped=manifest.encode)
    assert "image: vllm/vllm-openai" in text
    assert "kind: ScaledObject" in text


def test_there_is_an_example_for_each_golden_file():
    golden = sorted(GOLDEN.rglob("*.yaml"))
    assert [str(path.relative_to(GOLDEN)) for path in golden] == NAMES


@pytest.mark.parametrize("example", FROM_REFERENCES, ids=lambda path: path.stem)
def test_an_example_of_the_references_is_the_same_in_both_groups(example: Path):
    """But for the folder of a node, which each group keeps where it was, and a group's labels."""
    text = example.read_text()
    assert groups.NOCTAYA not in text
    texts = (text, text.replace(groups.HEARTH, groups.NOCTAYA))
    for manifest in (one for each in texts for one in yaml.safe_load_all(each)):
        group = manifest["apiVersion"].partition("/")[0]
        structure = schema.of(manifest["kind"], group)
        jsonschema.validate(manifest, structure, cls=jsonschema.Draft7Validator)
        named = manifest | {"metadata": {"namespace": "default", **manifest["metadata"]}}
        assert rules.broken(schema.with_defaults(named, structure)) == []
    ours, theirs = (list(yaml.safe_load_all(rendered(one))) for one in texts)
    assert [spec_of(one) for one in ours] == [spec_of(one) for one in theirs]


def rendered(text: str) -> str:
    return render.text(["-"], release=Release(), piped=text.encode)


def spec_of(manifest):
    """Kind, name and spec, as text, with one folder of a node for both groups, without labels."""
    text = yaml.safe_dump({"kind": manifest["kind"], "spec": manifest["spec"]})
    text = re.sub(rf"(?m)^ +{groups.NOCTAYA}/(llmservice|runtime): .*\n", "", text)
    named = f"{manifest['metadata']['name']} {text}"
    return re.sub(r"/var/lib/(hearth|noctaya)/cache/default[-/]", "/cache/default/", named)


def test_every_example_of_the_references_stands_in_the_table():
    page = (FOLDER / "README.md").read_text()
    assert re.findall(r"\(vllm/([\w.-]+\.yaml)\)", page) != []
    assert {path.name for path in FROM_REFERENCES} == set(
        re.findall(r"\(vllm/([\w.-]+\.yaml)\)", page)
    )


@pytest.mark.parametrize("golden", sorted(GOLDEN.rglob("*.yaml")), ids=lambda path: path.stem)
def test_the_stub_understands_what_it_is_told(golden: Path):
    for manifest in yaml.safe_load_all(golden.read_text()):
        if manifest["kind"] == "Deployment":
            container = manifest["spec"]["template"]["spec"]["containers"][0]
            if container["args"][0] == "stub":
                options.parse(container["args"][1:])
