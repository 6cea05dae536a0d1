"""What works, but maybe not as meant."""

import pytest

from tests.reconcile.builders import render, runtime, service

HOST = {"strategy": "HostPath"}
OCI = {"source": {"uri": "oci://registry/repo@sha256:" + "0" * 64}}


def user(context: str):
    return runtime(annotations={"hearth.dev/container-security-context": context})


def startup(**probe: int):
    return runtime({"health": {"startup": {"httpGet": {"port": 80}, **probe}}})


ENV = "InferenceRuntime stub: spec.container.env"


def variables(**env: str):
    return runtime({"container": {"env": [{"name": n, "value": v} for n, v in env.items()]}})


@pytest.mark.reference(
    "noctaya:spec.endpoint.resources.requests.cpu",
    "noctaya:spec.endpoint.resources.requests.memory",
    "noctaya:spec.endpoint.resources.limits.cpu",
    "noctaya:spec.endpoint.resources.limits.memory",
)
@pytest.mark.parametrize(
    ("spec", "by", "expected"),
    [
        ({}, runtime(), []),
        (
            {"endpoint": {"maxQueue": 20}, "scaling": {"target": 10, "max": 5}, "cache": HOST},
            runtime(),
            ["spec.endpoint.maxQueue: 20 is less than scaling.target x scaling.max (50): never more"
             " than 2 of 5"],
        ),
        ({"endpoint": {"maxQueue": 10}}, runtime(), []),
        ({"scaling": {"max": 2}}, runtime(), ["spec.cache.strategy: a NodeLocalPVC claim is"]),
        ({"scaling": {"max": 2}, "cache": HOST}, runtime(), []),
        ({"scaling": {"max": 2}, "model": {"source": {"uri": "pvc://w"}}}, runtime(), []),
        ({}, startup(failureThreshold=2), ["InferenceRuntime stub: spec.health.startup gives up"]),
        ({}, startup(failureThreshold=30), []),
        ({"scaling": {"activationTimeout": "1h"}}, runtime(), []),
        (
            {},
            runtime({"metrics": {"port": "stats", "queueDepth": "w"}}),
            ["InferenceRuntime stub: spec.metrics.port: there is no port 'stats'"],
        ),
        ({}, runtime({"metrics": {"queueDepth": "w"}}), []),
        ({}, runtime({"metrics": {"queueDepth": "w"}, "container": {"port": {"name": "api"}}}), []),
        ({}, variables(HF_HOME="/data"), [f"{ENV}: HF_HOME is /cache/hf for this service"]),
        ({}, variables(HF_HOME="/cache/hf"), []),
        ({"cache": {"strategy": "None"}}, variables(HF_HOME="/data"), []),
        (
            {"model": {"source": {"uri": "modelscope://o/m"}}},
            variables(VLLM_USE_MODELSCOPE="0", MODELSCOPE_CACHE="/data"),
            [f"{ENV}: MODELSCOPE_CACHE is /cache/modelscope for this service",
             f"{ENV}: VLLM_USE_MODELSCOPE is true for this service"],
        ),
        (
            {"model": {"source": {"uri": "modelscope://o/m"}}},
            variables(VLLM_USE_MODELSCOPE="True", HF_HUB_CACHE="/data"),
            [],
        ),
        ({}, variables(HF_HUB_CACHE="/data"), [f"{ENV}: HF_HUB_CACHE leads weights past /cache"]),
        ({}, variables(HF_HUB_CACHE="/cache/hub"), []),
        ({"cache": {"strategy": "None"}}, variables(HF_HUB_CACHE="/data"), []),
        ({"scaling": {"max": 2}, "cache": {"strategy": "SharedPVC"}}, runtime(), []),
        ({"cache": {"prewarm": True}}, runtime(), []),
        ({"cache": HOST | {"prewarm": True}}, runtime(), ["spec.cache: the Job of a prewarm"]),
        ({"cache": HOST, "model": OCI}, runtime(), ["spec.cache: the Job of a prewarm"]),
        ({"cache": HOST}, user("{runAsUser: 1000}"), ["spec.cache.strategy: the folder of a Host"]),
        ({"cache": HOST}, user("{runAsNonRoot: true}"), ["spec.cache.strategy: the folder of a"]),
        ({"cache": HOST}, user("{runAsUser: 0, runAsNonRoot: false}"), []),
        ({"cache": HOST}, user("{runAsNonRoot: false}"), []),
        ({"cache": HOST, "model": {"source": {"uri": "pvc://w"}}}, user("{runAsUser: 1}"), []),
        ({}, user("{runAsUser: 1000}"), []),
        ({"endpoint": {"resources": {}}}, runtime(), ["spec.endpoint.resources has no effect"]),
        ({"model": {"catalogRef": "c"}}, runtime(), ["spec.model.catalogRef has no effect beside"]),
        ({"model": {"catalogRef": ""}}, runtime(), []),
        (
            {"runtime": {"selector": {"vendor": ["nvidia"]}}},
            runtime(),
            ["spec.runtime.selector has no effect beside name, which wins"],
        ),
        ({"runtime": {"name": "", "selector": {"vendor": ["cpu"]}}}, runtime(), []),
    ],
)  # fmt: skip
def test_warnings(spec, by, expected: list[str]):
    got = render(service(spec), by).warnings
    assert len(got) == len(expected)
    for sentence, beginning in zip(got, expected, strict=True):
        assert sentence.startswith(beginning)


@pytest.mark.parametrize(
    ("spec", "elsewhere"),
    [
        ({"cache": HOST | {"prewarm": True}}, "each engine downloads its weights by itself"),
        ({"cache": HOST, "model": OCI}, "pods wait there until it is"),
    ],
)
def test_a_node_s_folder_is_filled_on_one_node(spec, elsewhere: str):
    [told] = render(service(spec)).warnings
    assert elsewhere in told
