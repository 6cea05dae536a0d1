"""What the notes and the docs give to paste works in a shell as it stands."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hearth.api import groups, manifests
from tests.chart.conftest import CHART, NAMESPACE, RELEASE

ROOT = CHART.parents[1]
PAGES = ("README.md", "docs/install.md")
_RECORD = """\
#!/bin/sh
{ printf '%s\\0' "$(basename "$0")" "$@"; printf '\\n'; } >>"$PASTED/commands"
case " $* " in
  *" -f - "*) cat >"$PASTED/manifests.yaml" ;;
  *" -o name"*) echo crd/llmservices.serving.hearth.dev ;;
  *" -o yaml"*) cat "$STORED" ;;
esac
"""
"""Stands where kubectl, helm and curl would: writes down what it was called with."""


@pytest.fixture
def paste(tmp_path):
    """`paste(block)` gives it to a shell: the commands that were run, and the manifests."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("kubectl", "helm", "curl"):
        (programs / name).write_text(_RECORD)
        (programs / name).chmod(0o755)
    # That of this environment, which need not be active.
    (programs / "hearth").symlink_to(Path(sys.executable).with_name("hearth"))

    def call(block):
        for left in ("commands", "manifests.yaml"):
            (tmp_path / left).unlink(missing_ok=True)
        env = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PASTED": str(tmp_path),
            "STORED": str(ROOT / "examples" / "noctaya.yaml"),
        }
        done = subprocess.run(
            ["bash", "-euo", "pipefail"],
            input=block,
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        lines = (tmp_path / "commands").read_text().split("\0\n")
        applied = tmp_path / "manifests.yaml"
        return (
            [line.split("\0") for line in lines if line],
            applied.read_text() if applied.exists() else "",
        )

    return call


def notes(helm, **values):
    """As `helm install` prints them."""
    done = subprocess.run(
        [helm.program, "install", RELEASE, CHART, "--namespace", NAMESPACE, "--values", "-",
         "--dry-run=client"],
        input=json.dumps(values), capture_output=True, text=True,
        env=os.environ | {"KUBECONFIG": "/dev/null"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


def blocks(text):
    """What is to be pasted: paragraphs that begin with a command."""
    return [part for part in text.split("\n\n") if re.match(r"(kubectl|helm|curl) ", part.strip())]


@pytest.mark.parametrize(
    ("values", "namespace"),
    [
        ({}, "default"),
        ({"namespaces": ["ai", "web"]}, "ai"),
        ({"gateway": {"domain": "models.example.com"}, "defaultNamespace": "team"}, "team"),
    ],
)
def test_field_case_132_the_notes_are_pasted_as_they_stand(helm, paste, values, namespace):
    text = notes(helm, **values)
    found = blocks(text)
    assert not re.search(r"(?m)^ +(kubectl|helm|curl|---|YAML)", text)
    ran = []
    for block in found:
        commands, applied = paste(block)
        # One that does not end stands alone: nothing after it would be reached.
        assert len(commands) == 1 or not any("port-forward" in words for words in commands)
        ran += [" ".join(words) for words in commands]
        if applied:
            parsed = manifests.parse(
                applied, file="notes", namespace="default", groups=groups.GROUPS
            )
            assert parsed.problems == []
            assert [m["kind"] for m in parsed.manifests] == ["InferenceRuntime", "LLMService"]
            assert parsed.manifests[1]["metadata"]["namespace"] == namespace
    assert f"kubectl -n {NAMESPACE} rollout status deployment/{RELEASE}" in ran
    assert f"kubectl -n {NAMESPACE} port-forward service/{RELEASE}-gateway 8080:80" in ran
    assert f"kubectl -n {NAMESPACE} port-forward service/{RELEASE}-admin 8081" in ran
    [curl] = [line for line in ran if line.startswith("curl ")]
    assert f'"model": "{namespace}/chat"' in curl
    assert len(ran) == 6


def fenced(page, language):
    text = (ROOT / page).read_text()
    assert not re.search(r"(?m)^ +```", text), f"{page}: a block that is indented cannot be pasted"
    found = re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", text)
    return [block for name, block in found if name == language]


def shell_blocks():
    for page in PAGES:
        for block in [*fenced(page, "sh"), *fenced(page, "")]:
            if re.match(r"(kubectl|helm) ", block):
                yield pytest.param(block, id=f"{Path(page).stem}-{shlex.split(block)[1]}")


@pytest.mark.parametrize("block", list(shell_blocks()))
def test_field_case_132_the_docs_are_pasted_as_they_stand(helm, paste, block):
    commands, _ = paste(block)
    for program, *words in commands:
        if program != "helm" or words[0] not in ("install", "upgrade"):
            continue
        # The real one is asked whether it would take these values.
        kept = [
            word
            for word in words[1:]
            if word not in ("--create-namespace", "--reset-then-reuse-values")
        ]
        done = subprocess.run(
            [helm.program, "template", *kept, "--kube-version", "1.34.0"],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr


def test_field_case_132_values_in_the_docs_are_taken(helm):
    found = [yaml.safe_load(block) for block in fenced("docs/install.md", "yaml")]
    assert found
    for values in found:
        assert helm.render(**values)
