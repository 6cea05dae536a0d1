"""What the schema, and so `kubectl explain` and docs/crd.md, describes is what can be had.

Every field and every value of an enum is used once, by a small service.  It is rendered; or the
description says that it is reserved and reported as Degraded, and then it is refused in words that
name it.
"""

import copy
import re
from typing import Any, NamedTuple

import pytest

from hearth.api import groups, rules, schema
from hearth.api.llmservice import LLMService
from hearth.api.runtime import InferenceRuntime
from hearth.reconcile.render import desired
from hearth.reconcile.render.release import Release
from hearth.reconcile.spec.spec_errors import SpecError
from tests import pages
from tests.api import samples
from tests.reference.test_fields import type_of

DIGEST = "7" * 64
URIS = re.compile(r"[a-z0-9]+://\S+?(?=[.,;)]?(?:\s|$))")
"""Those that a description gives as examples."""

VALUES: dict[str, Any] = {
    "boolean": (False, True),
    "duration": ("30s",),
    "env": ([{"name": "A", "value": "b"}],),
    "object array": ([{"name": "a"}],),
    "probe": ({"tcpSocket": {"port": "http"}},),
    "quantity": ("1Gi",),
    "string array": (["a"],),
    "string map": ({"a": "b"},),
    "tolerations": ([{"operator": "Exists"}],),
}
BY_PATH: dict[str, Any] = {
    "spec.runtime.selector.vendor": (["nvidia"],),
    "spec.container.port.name": ("api",),
}
_OCI = {"uri": f"oci://registry.example/a/b@sha256:{DIGEST}", "secretRef": {"name": "a"}}
AROUND: dict[str, dict[str, Any]] = {
    "spec.model.catalogRef": {"model": {}},
    "spec.model.source.secretRef": {"model__source": _OCI},
    "spec.runtime.selector": {"runtime": {}},
    "spec.scaling.min": {"scaling__max": 2},
    "spec.scaling.externalScaler": {
        "scaling__externalScaler__tls": {
            "serverSecretName": "a",
            "authenticationRef": {"name": "a"},
        }
    },
    "spec.endpoint.authentication": {
        "endpoint__authentication__secretRef": {"name": "a", "key": "a"}
    },
    "spec.accelerator.scheduler": {"accelerator__scheduler__name": "volcano"},
    "spec.metrics": {"metrics__queueDepth": "a"},
}
"""What a field cannot be without, by the beginning of its path."""


class Use(NamedTuple):
    """One value of one field."""

    kind: str
    path: str
    value: Any
    description: str
    """Of the field and of those it is in."""
    is_choice: bool
    """Whether it is one of an enum."""


def uses():
    for kind in ("LLMService", "InferenceRuntime"):
        spec = schema.of(kind, groups.HEARTH)["properties"]["spec"]
        yield from _below(kind, "spec", spec, "")


def _below(kind, path, node, above):
    for name, item in node["properties"].items():
        at, said = f"{path}.{name}", f"{above} {item['description']}"
        if type_of(item) == "object":
            yield from _below(kind, at, item, said)
            continue
        for value in _values(at, item):
            yield Use(kind, at, value, said.strip(), "enum" in item)


def _values(path, node):
    if found := BY_PATH.get(path) or node.get("enum") or VALUES.get(type_of(node)):
        return found
    if type_of(node) == "integer":
        return (max(1, node.get("minimum", 1)),)
    if path.endswith(".uri"):
        known = {"digest": DIGEST, "registry": "registry.example", "claim": "weights"}
        examples = [uri.replace("[/path]", "/a") for uri in URIS.findall(node["description"])]
        return [re.sub(r"\b(digest|registry|claim)\b", lambda m: known[m[0]], e) for e in examples]
    return ("a",)


USES = list(uses())


def outcome(use: Use, group: str = groups.HEARTH) -> str | None:
    """How the service that uses a value is refused; None where it is rendered."""
    around = next((a for p, a in AROUND.items() if use.path.startswith(p)), {})
    field = use.path.removeprefix("spec.").replace(".", "__")
    changes = copy.deepcopy(around) | {field: use.value}
    service = samples.service(group, **(changes if use.kind == "LLMService" else {}))
    runtime = samples.runtime(group, **(changes if use.kind == "InferenceRuntime" else {}))
    for made in (service, runtime):
        filled = schema.with_defaults(made, schema.of(made["kind"], group))
        assert rules.broken(filled) == [], "a sample that is admitted"
    try:
        desired.render(
            LLMService.model_validate(service),
            InferenceRuntime.model_validate(runtime),
            release=Release(),
        )
    except SpecError as error:
        return error.rejection.message
    return None


def is_called_reserved(use: Use) -> bool:
    """Whether the page says that this is accepted and then reported as Degraded."""
    sentences = re.split(r"(?<=[.;])\s+", use.description)
    if use.is_choice:
        said = rf"\b{re.escape(str(use.value))} is reserved and reported as Degraded"
        return any(re.search(said, one) for one in sentences)
    return "Reserved" in use.description and "reported as Degraded" in use.description


@pytest.mark.parametrize("use", USES, ids=lambda use: f"{use.path}={use.value}")
@pytest.mark.parametrize("group", groups.GROUPS)
def test_what_is_described_can_be_had(use, group):
    refusal = outcome(use, group)
    assert (refusal is not None) == is_called_reserved(use), refusal
    if refusal is not None:
        assert use.path.rpartition(".")[2] in refusal or use.path.split(".")[2] in refusal
        assert re.search(r"\b(set|use|ask|put)\b", refusal), "it says what to do"


def test_every_scheme_that_is_described_is_tried():
    tried = {use.value.partition("://")[0] for use in USES if use.path.endswith(".uri")}
    assert {"hf", "huggingface", "modelscope", "pvc", "oci"} <= tried


@pytest.mark.parametrize("page", ["README.md", "docs/crd.md", "docs/install.md"])
def test_no_page_promises_what_is_not_built(page):
    text = (pages.ROOT / page).read_text()
    assert re.findall(r"(?i).*\b(?:not built|not implemented|not yet supported)\b.*", text) == []


def test_the_check_sees_a_description_that_promises_too_much():
    use = next(u for u in USES if u.value == "BakedImage")
    assert outcome(use) is not None and is_called_reserved(use)
    assert not is_called_reserved(use._replace(description="Kind of cache."))
    plain = next(u for u in USES if u.path == "spec.cache.size")
    assert outcome(plain) is None and not is_called_reserved(plain)
