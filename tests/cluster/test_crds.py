"""The chart's definitions, and what is published for people, before a real API server."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import pytest_asyncio
import yaml

from hearth.api import groups
from tests import hanging
from tests.api import reference_specs
from tests.api.samples import EVERYTHING, OCI, RESERVED, STORED, runtime, service
from tests.api.sides import SIDES
from tests.cluster import envtest

ROOT = Path(__file__).parents[2]
DEFINITIONS = sorted((ROOT / "charts" / "hearth" / "files" / "crds").glob("*.yaml"))
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
NAMESPACE = "definitions"
PLURALS = {"LLMService": "llmservices", "InferenceRuntime": "inferenceruntimes"}
INVALID = 422


class Answer(NamedTuple):
    status: int
    body: dict[str, Any]


class ApiServerClient:
    """What the API server would make of an object; nothing is stored."""

    def __init__(self, server: envtest.ApiServer, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._session = session

    async def ask(self, manifest) -> Answer:
        path = f"/apis/{manifest['apiVersion']}"
        if "namespace" in manifest["metadata"]:
            manifest = {
                **manifest, "metadata": {**manifest["metadata"], "namespace": NAMESPACE},
            }  # fmt: skip
            path += f"/namespaces/{NAMESPACE}"
        path += f"/{PLURALS[manifest['kind']]}?dryRun=All&fieldValidation=Strict"
        async with self._session.post(f"{self._server.url}{path}", json=manifest) as answer:
            return Answer(answer.status, await answer.json())

    async def patch(self, manifest, changes, subresource: str = "") -> Answer:
        """Change a stored object."""
        metadata = manifest["metadata"]
        path = (
            f"/apis/{manifest['apiVersion']}/namespaces/{metadata['namespace']}"
            f"/{PLURALS[manifest['kind']]}/{metadata['name']}{subresource}"
        )
        headers = {"Content-Type": "application/merge-patch+json"}
        async with self._session.patch(
            f"{self._server.url}{path}", data=json.dumps(changes), headers=headers
        ) as answer:
            return Answer(answer.status, await answer.json())

    async def stored(self, manifest) -> dict[str, Any]:
        """Its spec, as it would be stored."""
        answer = await self.ask(manifest)
        assert answer.status == 201, answer.body
        return answer.body["spec"]


@pytest.fixture(scope="module")
def kubectl(apiserver):
    """`kubectl(words…)` on a server that has the chart's definitions; what it prints."""

    def call(*words: str, given: str = "") -> str:
        done = subprocess.run(
            [apiserver.assets / "kubectl", "--kubeconfig", apiserver.kubeconfig(), *words],
            input=given,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    files = [word for path in DEFINITIONS for word in ("-f", str(path))]
    call("create", "namespace", NAMESPACE)
    call("apply", "--server-side", *files)
    call("wait", "--for=condition=Established", f"--timeout={hanging.duration(60)}", *files)
    yield call
    call("delete", *files)


@pytest_asyncio.fixture
async def client(apiserver, kubectl):
    headers = {"Authorization": f"Bearer {envtest.ADMIN}"}
    connector = aiohttp.TCPConnector(ssl=apiserver.context())
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        yield ApiServerClient(apiserver, session)


def _rules(schema, at=()) -> Iterator[tuple[str, str]]:
    """Every CEL rule of a schema: the field it points to, and its message."""
    for rule in schema.get("x-kubernetes-validations", ()):
        field = rule.get("fieldPath", "").removeprefix(".")
        yield ".".join([*at, *([field] if field else [])]), rule["message"]
    for name, below in schema.get("properties", {}).items():
        yield from _rules(below, (*at, name))
    if isinstance(items := schema.get("items"), dict):
        yield from _rules(items, (*at[:-1], f"{at[-1]}[]"))
    if isinstance(below := schema.get("additionalProperties"), dict):
        yield from _rules(below, (*at, "*"))


class Definition(NamedTuple):
    kind: str
    group: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}"


def _published() -> Iterator[tuple[Definition, set[tuple[str, str]]]]:
    for path in DEFINITIONS:
        spec = yaml.safe_load(path.read_text())["spec"]
        [version] = spec["versions"]
        found = set(_rules(version["schema"]["openAPIV3Schema"]))
        yield Definition(spec["names"]["kind"], spec["group"]), found


def _anywhere(field: str) -> str:
    return re.sub(r"\[\d+\]", "[]", field)


PUBLISHED = dict(_published())
"""The CEL rules of each definition: field and message."""


def _documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


class TestDefinitions:
    def test_crds_are_established(self, kubectl):
        for path in DEFINITIONS:
            status = json.loads(kubectl("get", "-f", str(path), "-o", "json"))["status"]
            told = {entry["type"]: entry["status"] for entry in status["conditions"]}
            assert told == {"NamesAccepted": "True", "Established": "True"}

    @pytest.mark.parametrize("definition", PUBLISHED, ids=str)
    def test_every_rule_has_samples_on_both_sides(self, definition):
        shown = {(s.kind, _anywhere(s.field), s.message) for s in SIDES if s.good and s.bad}
        assert PUBLISHED[definition]
        assert {(definition.kind, *rule) for rule in PUBLISHED[definition]} - shown == set()

    @pytest.mark.parametrize(
        ("definition", "sides"),
        [
            (definition, sides)
            for definition, found in PUBLISHED.items()
            for sides in SIDES
            if sides.kind == definition.kind and (_anywhere(sides.field), sides.message) in found
        ],
        ids=lambda one: f"{one.field}: {one.message[:30]}" if hasattr(one, "field") else str(one),
    )
    async def test_cel_rule_from_both_sides(self, client, definition, sides):
        for manifest in sides.good:
            answer = await client.ask(manifest)
            assert answer.status == 201, answer.body
        for manifest in sides.bad:
            version = f"{definition.group}/{groups.VERSION}"
            answer = await client.ask({**manifest, "apiVersion": version})
            assert answer.status == INVALID, answer.body
            causes = answer.body["details"]["causes"]
            assert any(
                cause["field"] == sides.field and sides.message in cause["message"]
                for cause in causes
            ), causes


ANOTHER_MISTAKE = {
    "spec.scaling.scaleDownStabilization": {"spec": {"scaling": {"scaleDownStabilization": "2h"}}},
    "spec.scaling.min": {"spec": {"scaling": {"min": 3}}},
    "spec.scaling.activationTimeout": {"spec": {"scaling": {"activationTimeout": "-1s"}}},
    "spec.scaling.drainTimeout": {"spec": {"scaling": {"drainTimeout": "-2s"}}},
    "spec.endpoint.coldStart.heartbeatInterval": {
        "spec": {"endpoint": {"coldStart": {"heartbeatInterval": "-1s"}}}
    },
}
MENDED = {
    "spec.scaling.scaleDownStabilization": {"spec": {"scaling": {"scaleDownStabilization": "2m"}}},
    "spec.scaling.min": {"spec": {"scaling": {"max": 3}}},
    "spec.scaling.activationTimeout": {"spec": {"scaling": {"activationTimeout": "1s"}}},
    "spec.scaling.drainTimeout": {"spec": {"scaling": {"drainTimeout": "2s"}}},
    "spec.endpoint.coldStart.heartbeatInterval": {
        "spec": {"endpoint": {"coldStart": {"heartbeatInterval": "1s"}}}
    },
}


def _without_rules(schema: Any) -> Any:
    """The definition's schema, as of a release that had no rules yet."""
    if isinstance(schema, dict):
        kept = {k: v for k, v in schema.items() if k != "x-kubernetes-validations"}
        return {name: _without_rules(below) for name, below in kept.items()}
    return [_without_rules(item) for item in schema] if isinstance(schema, list) else schema


@pytest.fixture(params=groups.GROUPS)
def stored(kubectl, request):
    """The services of `reference_specs`, stored while there were no rules."""
    group = request.param
    definition = next(p for p in DEFINITIONS if p.name == f"llmservices.{group}.yaml")
    older = _without_rules(yaml.safe_load(definition.read_text()))
    kubectl("apply", "--server-side", "-f", "-", given=json.dumps(older))
    services = [
        *(
            service(group, name=f"stored-{number}", **changes)
            for number, (_, changes) in enumerate(reference_specs.STORED)
        ),
        *(service(group, name=name) for name in reference_specs.STORED_NAMES),
    ]
    made = [{**one, "metadata": {**one["metadata"], "namespace": NAMESPACE}} for one in services]
    for one in made:
        # For a moment the server still has the definition of before.
        assert any(_taken(kubectl, one) for _ in range(100))
    kubectl("apply", "--server-side", "-f", str(definition))
    yield made
    kubectl("delete", "--all", f"llmservices.{group}", "-n", NAMESPACE)


def _taken(kubectl, manifest) -> bool:
    try:
        kubectl("create", "-f", "-", given=json.dumps(manifest))
    except AssertionError:
        return False
    return True


class TestStoredBeforeTheRules:
    """Rules at the root of a definition are judged at every write, as before Kubernetes 1.30 all
    are: a newer API server looks away only where the part that a rule belongs to is unchanged."""

    async def test_field_case_90_status_and_edits_of_what_breaks_a_rule(self, client, stored):
        with hanging.guard():
            while (await client.ask(stored[0])).status == 201:
                pass  # the server still has the definition without rules
        for number, manifest in enumerate(stored):
            for phase in ("Degraded", "Ready"):
                answer = await client.patch(manifest, {"status": {"phase": phase}}, "/status")
                assert answer.status == 200, answer.body
            answer = await client.patch(manifest, {"spec": {"scaling": {"target": 11}}})
            assert answer.status == 200, answer.body
            if number >= len(reference_specs.STORED):
                continue
            field, _ = reference_specs.STORED[number]
            answer = await client.patch(manifest, ANOTHER_MISTAKE[field])
            assert answer.status == INVALID, answer.body
            assert [cause["field"] for cause in answer.body["details"]["causes"]] == [field]
            answer = await client.patch(manifest, MENDED[field])
            assert answer.status == 200, answer.body

    @pytest.mark.parametrize("group", groups.GROUPS)
    async def test_who_sends_a_status_along_is_held_to_them_as_well(self, client, group):
        bad = [service(group, **changes) for _, changes in reference_specs.STORED]
        bad += [service(group, name=name) for name in reference_specs.STORED_NAMES]
        for manifest in bad:
            answer = await client.ask({**manifest, "status": {"phase": "Ready"}})
            assert answer.status == INVALID, answer.body


class TestWhatIsPublished:
    @pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
    def test_examples_are_accepted(self, kubectl, path):
        wanted = _documents(path.read_text())
        words = ("-n", NAMESPACE, "--dry-run=server", "-o", "name", "-f", str(path))
        for how in (("apply",), ("apply", "--server-side"), ("create", "--validate=strict")):
            assert len(kubectl(*how, *words).splitlines()) == len(wanted)

    def test_manifests_of_the_docs_are_accepted(self, kubectl):
        shown = 0
        for path in PAGES:
            for block in re.findall(r"(?ms)^```yaml\n(.*?)^```", path.read_text()):
                if "\nkind: " in f"\n{block}":
                    shown += 1
                    kubectl(
                        "-n",
                        NAMESPACE,
                        "apply",
                        "--server-side",
                        "--dry-run=server",
                        "-f",
                        "-",
                        given=block,
                    )
        assert shown

    @pytest.mark.parametrize(
        ("group", "spec"),
        [(group, spec) for spec in reference_specs.SPECS for group in spec.groups],
        ids=str,
    )
    async def test_specs_that_a_reference_lets_in_are_accepted(self, client, group, spec):
        answer = await client.ask(service(group, **spec.changes))
        assert answer.status == 201, answer.body

    @pytest.mark.parametrize("group", groups.GROUPS)
    async def test_runtimes_that_a_reference_lets_in_are_accepted(self, client, group):
        for changes in reference_specs.RUNTIMES:
            answer = await client.ask(runtime(group, **changes))
            assert answer.status == 201, answer.body

    @pytest.mark.parametrize("number", range(len(EVERYTHING + RESERVED)))
    async def test_reference_manifests_are_stored_unchanged(self, client, number):
        manifest = (EVERYTHING + RESERVED)[number]
        stored = await client.stored(manifest)
        assert _within(manifest["spec"], stored)


BARE = {
    "LLMService": {
        "model__source": {"uri": OCI, "secretRef": {}},
        "resources": {"fraction": {}},
        "scaling": {
            "externalScaler": {
                "tls": {"serverSecretName": "tls", "authenticationRef": {"name": "keda"}}
            }
        },
        "endpoint": {"coldStart": {}},
        "cache": {},
        "imagePullSecrets": [{}],
    },
    "InferenceRuntime": {
        "container": {"image": "engine:1", "port": {}},
        "accelerator": {"resourceName": "nvidia.com/gpu", "sharing": {}, "scheduler": {}},
        "lifecycle": {},
        "metrics": {"queueDepth": "waiting"},
        "health": {},
    },
}
"""Every object there is, and in it only what is required."""

REFERENCE = {
    "LLMService": {
        "spec.model.source.secretRef.name": "",
        "spec.resources.accelerators": 1,
        "spec.scaling.min": 0,
        "spec.scaling.max": 1,
        "spec.scaling.metric": "queueDepth",
        "spec.scaling.target": 10,
        "spec.scaling.activationTimeout": "5m",
        "spec.scaling.scaleDownStabilization": "5m",
        "spec.scaling.drainTimeout": "2m",
        "spec.scaling.externalScaler.tls.authenticationRef.kind": "TriggerAuthentication",
        "spec.cache.strategy": "NodeLocalPVC",
        "spec.cache.prewarm": False,
        "spec.endpoint.openAICompatible": True,
        "spec.endpoint.maxQueue": 100,
        "spec.endpoint.coldStart.mode": "keepalive",
        "spec.endpoint.coldStart.heartbeatInterval": "10s",
        "spec.imagePullSecrets[].name": "",
    },
    "InferenceRuntime": {
        "spec.family": "vllm",
        "spec.priority": 0,
        "spec.container.port.name": "http",
        "spec.container.port.containerPort": 8000,
        "spec.accelerator.sharing.supported": False,
        "spec.accelerator.scheduler.name": "",
        "spec.lifecycle.preStopDrain": False,
        "spec.metrics.path": "/metrics",
        "spec.metrics.port": "http",
    },
}
"""The defaults of the two public references."""


class TestDefaults:
    @pytest.mark.parametrize("group", groups.GROUPS)
    @pytest.mark.parametrize("kind", PLURALS)
    async def test_documented_defaults_come_back(self, client, kind, group):
        make = service if kind == "LLMService" else runtime
        bare, documented = BARE[kind], _documented(kind)
        if (kind, group) == ("LLMService", groups.NOCTAYA):
            # There a rule, which that reference has as well, asks for the name.
            bare = bare | {"model__source": {"uri": OCI, "secretRef": {"name": "pull"}}}
            documented |= {"spec.model.source.secretRef.name": "pull"}
        stored = await client.stored(make(group, **bare))
        assert REFERENCE[kind].items() <= _documented(kind).items()
        assert {path: _at({"spec": stored}, path) for path in documented} == documented

    async def test_defaults_of_a_service_of_two_fields(self, client):
        assert await client.stored(service()) == STORED


def _documented(kind: str) -> dict[str, Any]:
    """Path to default, by docs/crd.md."""
    text = (ROOT / "docs" / "crd.md").read_text()
    section = text.split(f"\n## {kind}\n")[1].split("\n## ")[0]
    rows = re.findall(r"(?m)^\| `(spec\.[^`]+)` \| [^|]* \| `([^`]*)` \|", section)
    return {path: yaml.safe_load(default) for path, default in rows}


def _at(value: Any, path: str) -> Any:
    for step in path.replace("[]", ".0").split("."):
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _within(given: Any, stored: Any) -> bool:
    if isinstance(given, dict) and isinstance(stored, dict):
        return all(name in stored and _within(given[name], stored[name]) for name in given)
    if isinstance(given, list) and isinstance(stored, list):
        return len(given) == len(stored) and all(map(_within, given, stored))
    return given == stored
