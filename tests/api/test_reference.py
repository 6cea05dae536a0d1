"""The reference page is up to date and leaves no field and no rule out."""

from pathlib import Path

from hearth.api import options, reference, rules
from hearth.api.llmservice import Cache

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


def test_every_rule_and_option_is_told():
    text = reference.text()
    for rule in rules.TABLE:
        assert rule.message in text
    for option in options.TABLE:
        assert f"`{option.name}`" in text


def test_the_size_that_is_filled_in_later_is_the_models():
    assert f"{Cache().size} when left out" in reference.text()
