"""The custom resources' models as CustomResourceDefinitions."""

from collections.abc import Iterable
from typing import Any

import yaml

from hearth.api import groups, schema
from hearth.api.meta import Manifest

_NAMES: dict[str, dict[str, Any]] = {
    "LLMService": {
        "kind": "LLMService",
        "listKind": "LLMServiceList",
        "plural": "llmservices",
        "singular": "llmservice",
        "shortNames": ["llm", "llmsvc"],
    },
    "InferenceRuntime": {
        "kind": "InferenceRuntime",
        "listKind": "InferenceRuntimeList",
        "plural": "inferenceruntimes",
        "singular": "inferenceruntime",
        "shortNames": ["infrt"],
    },
}
_SCOPE = {"LLMService": "Namespaced", "InferenceRuntime": "Cluster"}
_KEEP = {"helm.sh/resource-policy": "keep"}
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_COLUMNS: dict[str, list[dict[str, Any]]] = {
    "LLMService": [
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Runtime", "type": "string", "jsonPath": ".status.resolvedRuntime"},
        {"name": "Replicas", "type": "integer", "jsonPath": ".status.replicas"},
        {"name": "Endpoint", "type": "string", "jsonPath": ".status.endpointURL", "priority": 1},
        _AGE,
    ],
    "InferenceRuntime": [
        {"name": "Vendor", "type": "string", "jsonPath": ".spec.vendor"},
        {"name": "Priority", "type": "integer", "jsonPath": ".spec.priority"},
        {"name": "Image", "type": "string", "jsonPath": ".spec.container.image", "priority": 1},
        _AGE,
    ],
}


def documents(api_groups: Iterable[str] = groups.GROUPS) -> list[Manifest]:
    """The CustomResourceDefinitions of the given API groups."""
    return [_definition(kind, group) for group in api_groups for kind in _NAMES]


def yaml_text(api_groups: Iterable[str] = groups.GROUPS) -> str:
    """The same as one YAML text, ready for `kubectl apply -f -`."""
    return "---\n".join(_yaml(document) for document in documents(api_groups))


def files(api_groups: Iterable[str] = groups.GROUPS) -> dict[str, str]:
    """The chart's copies: file name to text.

    Helm renders them, so that an upgrade of the release upgrades them, and keeps them, with every
    custom resource, when the release goes.
    """
    return {
        f"{document['spec']['names']['plural']}.{document['spec']['group']}.yaml": _yaml(
            {**document, "metadata": {**document["metadata"], "annotations": _KEEP}}
        )
        for document in documents(api_groups)
    }


def _definition(kind: str, group: str) -> Manifest:
    names = _NAMES[kind]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {
            "group": group,
            "names": names,
            "scope": _SCOPE[kind],
            "versions": [
                {
                    "name": groups.VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema.of(kind, group)},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _COLUMNS[kind],
                }
            ],
        },
    }


class _Dumper(yaml.SafeDumper):
    """Writes each value out where it stands, never as an alias of an equal one."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(document: Manifest) -> str:
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
    return text
