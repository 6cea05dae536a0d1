"""The reference page is up to date and leaves no field and no rule out."""

from pathlib import Path

from hearth.api import groups, options, reference, rules
from hearth.api.llmservice import Cache, LLMService
from hearth.api.meta import ServiceKey
from hearth.api.runtime import InferenceRuntime
from hearth.cache import volume
from hearth.reconcile.render import accelerators, probes
from tests.api import samples
from tests.reference import table

_PAGE = Path(__file__).parents[2] / "docs" / "crd.md"


def test_the_page_is_up_to_date():
    assert _PAGE.read_text() == reference.text()


def test_fields_types_and_defaults():
    rows = reference.text().splitlines()
    for row in (
        "| `spec.scaling.min` | integer, at least 0 | `0` |",
        "| `spec.scaling.activationTimeout` | duration | `5m` |",
        "| `spec.cache.size` | quantity | - |",
        "| `spec.model` | object | required |",
        "| `spec.endpoint.openAICompatible` | boolean | `true` |",
        '| `spec.imagePullSecrets[].name` | string | `""` |',
        "| `spec.container.env` | list of EnvVar | - |",
        "| `spec.health.startup` | Probe | - |",
        "| `httpGet.port` | integer or string | required |",
        "| `spec.container.port.containerPort` | integer, 1 to 65535 | `8000` |",
        "| `spec.accelerator.nodeSelector` | map of string | - |",
        "| `status.conditions[].lastTransitionTime` | time | required |",
    ):
        assert any(line.startswith(row) for line in rows), row
    assert not any(line.startswith("| `spec.health.readiness.") for line in rows)


def test_every_table_has_the_same_number_of_cells_in_each_row():
    width = 0
    for line in reference.text().splitlines():
        cells = line.count("|") - line.count(reference.PIPE)
        width = width if line.startswith("|") else 0
        assert not width or cells == width, line
        width = cells if line.startswith("|") else 0


def test_where_a_field_comes_from():
    """By the rows of the two references."""
    told = {}
    for line in reference.text().splitlines():
        if line.startswith("| `spec."):
            path, _, _, since = line.removeprefix("| ").split(" | ")[:4]
            told[path.strip("`")] = since
    assert set(told.values()) == {"1", "2"}
    rows = {row.path: row.of.split() for row in table.FIELDS if row.path in told}
    assert rows
    # A field below one that only the second has; or of a type that both take from Kubernetes.
    assert {path: "1" if "hearth" in of else "2" for path, of in rows.items()} == {
        path: told[path] for path in rows
    }


def test_the_folders_of_nodes_are_those_that_are_mounted():
    text = reference.text()
    key = ServiceKey("<namespace>", "<service>")
    for group in groups.GROUPS:
        assert f"`{volume.host_folder(key, group)}`" in text
        assert f"`{volume.host_folder(key, group, former=True)}`" in text
    runtime = InferenceRuntime.model_validate(
        samples.runtime(vendor="ascend", accelerator={"resourceName": "huawei.com/Ascend910"})
    )
    for mounted in accelerators.render(runtime, accelerators=1).volumes:
        assert f"`{mounted['hostPath']['path']}`" in text


def test_how_long_a_start_may_take_is_what_is_rendered():
    [row] = [
        line for line in reference.text().splitlines() if line.startswith("| `spec.health.startup`")
    ]
    assert "for ten minutes" in row and "activationTimeout where that is longer" in row
    runtime = InferenceRuntime.model_validate(samples.runtime())
    for timeout, startup_s in (("5m", 600), ("10m", 600), ("30m", 1800)):
        service = LLMService.model_validate(samples.service(scaling__activationTimeout=timeout))
        assert probes.render(service, runtime).startup_s == startup_s


def test_every_rule_and_option_is_told():
    text = reference.text()
    for rule in rules.TABLE:
        assert rule.message in text
    for option in options.TABLE:
        assert f"`{option.name}`" in text


def test_the_size_that_is_filled_in_later_is_the_models():
    assert f"{Cache().size} when left out" in reference.text()
