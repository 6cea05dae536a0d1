"""The chart as a part of a bigger one."""

import json
import shutil
import subprocess

import pytest
import yaml

from tests.chart.conftest import CHART, kinds, one


@pytest.fixture
def parent(tmp_path):
    """A chart that lists ours as a dependency with a condition."""
    dependency = {"name": "hearth", "version": "0.1.0", "condition": "hearth.enabled"}
    chart = {"apiVersion": "v2", "name": "platform", "version": "1.0.0",
             "dependencies": [dependency]}  # fmt: skip
    (tmp_path / "Chart.yaml").write_text(json.dumps(chart))
    shutil.copytree(CHART, tmp_path / "charts" / "hearth")
    return tmp_path


def template(helm, parent, **values):
    return subprocess.run(
        [helm.program, "template", "platform", parent, "--namespace", "sys", "--values", "-",
         "--kube-version", "1.34.0"],
        input=json.dumps(values), capture_output=True, text=True,
    )  # fmt: skip


def test_field_case_100_a_dependency_with_a_condition(each_helm, parent):
    wanted = {"enabled": True, "crds": {"install": False}, "replicas": 1}
    done = template(each_helm, parent, hearth=wanted, **{"global": {"imageRegistry": "x"}})
    assert done.returncode == 0, done.stderr
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    assert one(documents, "Deployment", "platform")["spec"]["replicas"] == 1
    assert "ClusterRole" in kinds(documents)


def test_field_case_100_and_switched_off(each_helm, parent):
    done = template(each_helm, parent, hearth={"enabled": False})
    assert done.returncode == 0, done.stderr
    assert [document for document in yaml.safe_load_all(done.stdout) if document] == []


def test_field_case_100_a_typo_is_refused_all_the_same(each_helm, parent):
    done = template(each_helm, parent, hearth={"enabled": True, "replica": 1})
    assert done.returncode != 0 and "replica" in done.stderr
