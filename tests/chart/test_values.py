"""The chart's raw files: closed, described, and in step with the program's own settings."""

import json
import re
from copy import deepcopy

import jsonschema
import pytest
import yaml

import hearth
from hearth import names
from hearth.api import rules
from hearth.settings import ClusterSettings, shown_default
from tests.chart.conftest import CHART

VALUES_TEXT = (CHART / "values.yaml").read_text()
VALUES = yaml.safe_load(VALUES_TEXT)
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES = {path.name: path.read_text() for path in (CHART / "templates").iterdir()}

AS_IN_KUBERNETES = {
    "global", "affinity", "podSecurityContext", "securityContext", "limits", "requests",
    "valueFrom", "namespaceSelector", "podSelector", "ipBlock", "items",
}  # fmt: skip
"""Parts whose schema is the API server's: it refuses what it does not know."""

SETTINGS = {
    "namespaces": ("namespaces",),
    "groups": ("noctaya", "enabled"),
    "default_namespace": ("defaultNamespace",),
    "cluster_domain": ("clusterDomain",),
    "shared_service": ("sharedService",),
    "ingress_domain": ("gateway", "domain"),
    "client_idle": ("gateway", "clientIdle"),
    "ready_grace": ("gateway", "readyGrace"),
    "drain_limit": ("gateway", "drainLimit"),
    "body_limit_bytes": ("gateway", "bodyLimitBytes"),
    "held_bytes": ("gateway", "heldBytes"),
    "cors_origins": ("gateway", "corsOrigins"),
    "admin_hosts": ("admin", "hosts"),
    "error_detail": ("gateway", "errorDetail"),
    "polling_interval": ("scaler", "pollingInterval"),
    "watchdog": ("scaler", "watchdog"),
    "hpa_watchdog": ("scaler", "hpaWatchdog"),
    "admin_token": ("admin", "tokenSecret", "name"),
    "backend_guard": ("backends", "guard"),
    "scrape_namespaces": ("backends", "scrapeNamespaces"),
    "migration_cleanup": ("migration", "cleanup"),
    "mark_loading": ("backends", "markLoading"),
    "prewarm_oras_image": ("prewarm", "orasImage"),
    "log_level": ("log", "level"),
    "log_format": ("log", "format"),
    "access_log": ("log", "access"),
}
"""The value behind each setting of `hearth run`."""

NO_VALUE = {
    "host": "a pod has one address, and its probes ask for all three ports there",
    "gateway_port": "inside the pod; Services say what clients dial",
    "admin_port": "as above",
    "scaler_port": "as above",
    "scaler_tls_port": "as above",
    "release": "the release's own name",
    "namespace": "the release's own namespace",
    "pod_name": "the pod's own",
    "pod_uid": "as above",
    "kubeconfig": "the pod has an account",
    "context": "as above",
}
"""Settings that nobody should choose in a cluster, each with the reason."""

OTHER_DEFAULT = {
    "namespaces": "none listed is all",
    "groups": "what is optional is off",
    "backend_guard": "the right to write policies comes with the chart",
    "cluster_domain": "the program's own default is left to it",
    "prewarm_oras_image": "as above",
}


def _at(path):
    value = VALUES
    for part in path:
        value = value[part]
    return value


def test_the_defaults_satisfy_the_schema():
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)


def _objects(schema, name=""):
    if schema.get("type") == "object":
        yield name, schema
    for key, inner in schema.get("properties", {}).items():
        yield from _objects(inner, key)
    if "items" in schema:
        yield from _objects(schema["items"], "items" if "properties" not in schema["items"] else "")


def test_every_object_is_closed():
    opened = {
        name
        for name, schema in _objects(SCHEMA)
        if schema.get("additionalProperties") not in (False, {"type": "string"})
    }
    assert opened <= AS_IN_KUBERNETES, opened - AS_IN_KUBERNETES


def _leaves(schema, values, path=()):
    yield path, schema, values
    for key, inner in schema.get("properties", {}).items():
        yield from _leaves(inner, (values or {}).get(key), (*path, key))


def test_every_value_is_described_and_has_a_default():
    for path, schema, _ in _leaves(SCHEMA, VALUES):
        assert schema.get("description"), path
    assert set(SCHEMA["properties"]) - {"global", "enabled"} == set(VALUES)
    for section, value in VALUES.items():
        known = SCHEMA["properties"][section]
        if isinstance(value, dict) and known.get("additionalProperties") is False:
            optional = {"claims"} if section == "resources" else set()
            assert set(known["properties"]) - optional == set(value), section


def test_every_value_is_commented_where_it_stands():
    plain = re.compile(r"^ *[A-Za-z]+: [^#]*$")
    told_by_their_names = {
        "repository", "pullPolicy", "enabled", "annotations", "className", "create", "cpu",
        "memory", "topologySpreadConstraints", "nodeSelector", "tolerations", "priorityClassName",
        "runAsNonRoot", "runAsGroup", "type", "allowPrivilegeEscalation", "drop", "wildcard",
        "readOnlyRootFilesystem", "podLabels", "podAnnotations", "deploymentAnnotations",
        "interval", "scrapeTimeout", "loadBalancerClass", "loadBalancerSourceRanges", "request",
        "namespaces",
    }  # fmt: skip
    bare = {line.split(":")[0].strip() for line in VALUES_TEXT.splitlines() if plain.match(line)}
    assert bare <= told_by_their_names, bare - told_by_their_names


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("replica",), 3),
        (("replicas",), "two"),
        (("replicas",), -1),
        (("gateway", "drainlimit"), "2m"),
        (("gateway", "drainLimit"), "120"),
        (("gateway", "domain"), "https://models.example.com"),
        (("gateway", "corsOrigins"), "*"),
        (("gateway", "errorDetail"), "none"),
        (("gateway", "service", "type"), "Loadbalancer"),
        (("scaler", "pollingInterval"), 15),
        (("log", "level"), "verbose"),
        (("image", "digest"), "abc"),
        (("namespaces",), ["Team-A"]),
        (("namespaces",), ["a", "a"]),
        (("noctaya",), True),
        (("extraEnv",), [{"value": "no name"}]),
        (("networkPolicy", "gatewayFrom"), [{"namespaceselector": {}}]),
        (("httpRoute", "parentRefs"), [{"namespace": "no name"}]),
    ],
)
def test_a_mistake_is_refused(path, value):
    changed = deepcopy(VALUES)
    section = changed
    for part in path[:-1]:
        section = section[part]
    section[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed, SCHEMA)


def test_every_setting_has_a_value_or_a_reason_for_none():
    known = set(SETTINGS) | set(NO_VALUE)
    assert set(ClusterSettings.model_fields) <= known, set(ClusterSettings.model_fields) - known
    env = TEMPLATES["_env.tpl"]
    for name in SETTINGS:
        assert f"HEARTH_{name.upper()}," in env, name
    for path in SETTINGS.values():
        _at(path)


def test_the_defaults_are_the_programs_own():
    for name in set(SETTINGS) & set(ClusterSettings.model_fields) - set(OTHER_DEFAULT):
        value = _at(SETTINGS[name])
        shown = ",".join(value) if isinstance(value, list) else str(value)
        assert shown == shown_default(ClusterSettings.model_fields[name]), name


def test_every_value_is_used():
    text = "".join(TEMPLATES.values())
    for section, value in VALUES.items():
        whole = f".Values.{section} " in text or f".Values.{section})" in text
        parts = value if isinstance(value, dict) and not whole else ()
        assert whole or parts or f".Values.{section}" in text, section
        for part in parts:
            assert f".Values.{section}.{part}" in text, f"{section}.{part}"


def test_names_and_version_are_the_programs_own():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == hearth.__version__
    assert f"{names.LEADER_LABEL}: {names.LEADER}" in TEMPLATES["_names.tpl"]
    assert VALUES["sharedService"] == rules.RESERVED_NAME
    release = '{{ include "hearth.release" . }}'
    for name in (names.release_gateway, names.release_scaler, names.release_admin):
        assert f"name: {name(release)}\n" in TEMPLATES["services.yaml"]
