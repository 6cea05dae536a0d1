"""Every example is taken as it is, those for accelerators that are not here included."""

import shutil
from pathlib import Path

import yaml

from tests.lifecycle.harness import Hearth

EXAMPLES = Path(__file__).parents[2] / "examples"
CLUSTER_ONLY = {"secure"}
"""Valid, and answered with what is missing: KEDA's client certificate."""


async def test_every_example_is_served_or_sleeps(tmp_path):
    files = sorted(EXAMPLES.glob("*.yaml"))  # those in folders below fetch real weights
    documents = [one for path in files for one in yaml.safe_load_all(path.read_text())]
    names = {one["metadata"]["name"] for one in documents if one["kind"] == "LLMService"}
    assert len(names) == len(files) > 8
    hearth = Hearth(tmp_path)
    for path in files:
        shutil.copy(path, hearth.manifests)
    await hearth.start()
    try:
        rows = await hearth.all_until(
            lambda rows: (
                rows.keys() == names and "Pending" not in {r["phase"] for r in rows.values()}
            )
        )
    finally:
        assert await hearth.stop() == 0
    refused = {name: row["refusal"]["message"] for name, row in rows.items() if row["refusal"]}
    assert refused.keys() == CLUSTER_ONLY and all("cluster" in m for m in refused.values())
    phases = {row["phase"] for name, row in rows.items() if name not in CLUSTER_ONLY}
    assert phases == {"ScaledToZero"}
    said = [line.split()[1] for line in hearth.lines if line[:2].isdecimal()]
    assert sorted(said) == sorted(f"default/{name}" for name in names)  # and no problem of a file
    assert "Traceback" not in hearth.errors
