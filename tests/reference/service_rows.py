"""The rows of LLMService's spec."""

from tests.api.samples import GONE, OCI
from tests.reference.row import FIELD, HEARTH, NOCTAYA, field, refused, served, unstored

_SOURCES = "tests/cache/test_source.py"
_SELECTION = "tests/reconcile/spec/test_runtime_selection.py"
_COLD = "tests/proxy/behaviour/test_cold_start.py"
_LIFE = "tests/lifecycle/test_cold_start.py"
_WARNINGS = "tests/reconcile/spec/test_spec_warnings.py::test_warnings"
_AUTH = "tests/proxy/routing/test_auth.py"
_HUB = "a hub's model with all defaults"
_PRIVATE = "an artifact of a private registry"
_JOB = "a claim filled by a Job"
_MTLS = "mutual TLS of the scaler"
_TLS = {"serverSecretName": "tls", "authenticationRef": {"name": "keda"}}
_IN_TLS = (("scaling__externalScaler", {"tls": _TLS}),)
_KEY = (("endpoint__authentication", {"secretRef": {"name": "key", "key": "token"}}),)
_OCI = (("model__source__uri", OCI), ("model__source__secretRef", {"name": "pull"}))
_AMOUNTS = ("1", "500m", "32Gi", 4)

MODEL = [
    field("spec.model", "object", FIELD, bad=(GONE,)),
    field(
        "spec.model.catalogRef",
        "string",
        refused("a catalog"),
        unstored("source and catalogRef"),
        within=(("model", {}),),
        good=("tiny",),
    ),
    field("spec.model.source", "object", served(_HUB), bad=({},)),
    field(
        "spec.model.source.uri",
        "string",
        served(_HUB, "huggingface:// is hf://", "modelscope", "staged weights", _PRIVATE),
        refused("an unknown scheme", "a tag"),
        f"{_SOURCES}::test_model_uris",
        f"{_SOURCES}::test_errors_of_model_uris_say_what_to_write",
        good=("hf://a/b", "modelscope://a/b", "pvc://claim/folder", OCI, "s3://a/b"),
        bad=(GONE, ""),
    ),
    field(
        "spec.model.source.secretRef",
        "object",
        served(_PRIVATE),
        unstored("secretRef of a hub", "a secretRef without name"),
        within=_OCI[:1],
        good=({"name": "pull"},),
    ),
    field(
        "spec.model.source.secretRef.name",
        "string",
        served(_PRIVATE),
        of=HEARTH,
        default="",
        within=_OCI,
    ),
]
RUNTIME = [
    field(
        "spec.runtime",
        "object",
        f"{_SELECTION}::test_without_spec_runtime_none_is_selected",
        of=HEARTH,
        good=(GONE,),
    ),
    field(
        "spec.runtime.name",
        "string",
        refused("no such runtime"),
        unstored("no runtime", "name and selector"),
        f"{_SELECTION}::test_by_name_by_vendor_then_by_priority",
        good=("other",),
    ),
    field("spec.runtime.selector", "object", FIELD, of=HEARTH),
    field(
        "spec.runtime.selector.vendor",
        "string array",
        refused("two runtimes alike", "a vendor without runtimes"),
        f"{_SELECTION}::test_by_name_by_vendor_then_by_priority",
        within=(("runtime", {}),),
        good=(["nvidia"], ["nvidia", "ascend"]),
    ),
    field(
        "spec.runtime.argsOverride",
        "string array",
        served("arguments of the service's own"),
        refused("a template that is none"),
    ),
]
RESOURCES = [
    field("spec.resources", "object", FIELD, of=HEARTH),
    field(
        "spec.resources.accelerators",
        "integer",
        served("devices, cpu and memory"),
        default=1,
        good=(1, 8),
        bad=(0, -1),
    ),
    field("spec.resources.fraction", "object", refused("a part of a device"), good=({},)),
    field(
        "spec.resources.fraction.memory",
        "quantity",
        refused("a part of a device's memory"),
        of=HEARTH,
        good=_AMOUNTS,
    ),
    field(
        "spec.resources.fraction.cores",
        "integer",
        refused("a part of a device"),
        of=HEARTH,
        good=(1,),
    ),
    field(
        "spec.resources.cpu",
        "quantity",
        served("devices, cpu and memory"),
        good=_AMOUNTS,
        bad=("much",),
    ),
    field(
        "spec.resources.memory",
        "quantity",
        served("devices, cpu and memory"),
        good=_AMOUNTS,
        bad=("much",),
    ),
]
SCALING = [
    field("spec.scaling", "object", FIELD, of=HEARTH),
    field(
        "spec.scaling.min",
        "integer",
        served("scaling"),
        unstored("min above max"),
        default=0,
        good=(0, 1),
        bad=(-1, 2),
    ),
    field("spec.scaling.max", "integer", served("scaling"), default=1, good=(1, 9), bad=(0,)),
    field(
        "spec.scaling.metric",
        "string",
        refused("kvCacheUtil"),
        default="queueDepth",
        good=("queueDepth", "kvCacheUtil"),
        bad=("cpu",),
    ),
    field("spec.scaling.target", "integer", served("scaling"), default=10, good=(1,), bad=(0,)),
    field(
        "spec.scaling.activationTimeout",
        "duration",
        served("a long activation"),
        unstored("no activationTimeout"),
        "tests/proxy/behaviour/test_cold_requests.py::test_not_ready_in_time",
        f"{_COLD}::test_reject_says_when_to_come_back_and_wakes_all_the_same",
        default="5m",
        good=("10s", "10m"),
        bad=("0s", "-1s", "soon"),
    ),
    field(
        "spec.scaling.scaleDownStabilization",
        "duration",
        served("scaling"),
        refused("half seconds", "more than an hour"),
        "tests/reconcile/render/test_scaled_object.py::test_the_ends_of_the_window_are_legal",
        default="5m",
        good=("0s", "90s", "1h"),
        bad=("1500ms", "61m", "-1s"),
    ),
    field(
        "spec.scaling.drainTimeout",
        "duration",
        served("draining", "draining in less than the pod's own grace"),
        unstored("a negative drainTimeout"),
        default="2m",
        good=("0s", "90s"),
        bad=("-1s",),
    ),
    field(
        "spec.scaling.externalScaler.tls.serverSecretName",
        "string",
        served(_MTLS),
        "tests/keda/tls/test_certificate.py::test_what_is_wrong_is_named",
        of=NOCTAYA,
        within=_IN_TLS,
        bad=(GONE,),
    ),
    field(
        "spec.scaling.externalScaler.tls.authenticationRef.name",
        "string",
        served(_MTLS),
        of=NOCTAYA,
        within=_IN_TLS,
        bad=(GONE,),
    ),
    field(
        "spec.scaling.externalScaler.tls.authenticationRef.kind",
        "string",
        served(_MTLS),
        "tests/reconcile/render/test_scaled_object.py::test_mutual_tls",
        of=NOCTAYA,
        within=_IN_TLS,
        default="TriggerAuthentication",
        good=("TriggerAuthentication", "ClusterTriggerAuthentication"),
        bad=("Secret",),
    ),
]
CACHE = [
    field("spec.cache", "object", FIELD, of=HEARTH),
    field(
        "spec.cache.strategy",
        "string",
        served(_HUB, "a folder of the node", "no cache", "one claim for all nodes"),
        refused("a baked image"),
        default="NodeLocalPVC",
        good=("NodeLocalPVC", "HostPath", "SharedPVC", "BakedImage", "None"),
        bad=("Disk",),
    ),
    field(
        "spec.cache.size",
        "quantity",
        served(_HUB, "size and class of a claim"),
        default="50Gi",
        by_controller=True,
        good=_AMOUNTS,
        bad=("much",),
    ),
    field("spec.cache.storageClassName", "string", served("size and class of a claim")),
    field(
        "spec.cache.prewarm",
        "boolean",
        served(_JOB, "nothing to fill without a cache", "a token of the hub"),
        default=False,
        good=(True,),
    ),
]
ENDPOINT = [
    field("spec.endpoint", "object", FIELD, of=HEARTH),
    field(
        "spec.endpoint.openAICompatible",
        "boolean",
        "tests/reference/test_claims.py::test_what_is_only_informational_changes_nothing",
        default=True,
        good=(False,),
    ),
    field(
        "spec.endpoint.maxQueue",
        "integer",
        f"{_LIFE}::test_a_full_queue_turns_the_next_one_away",
        "tests/proxy/behaviour/test_cold_requests.py::test_a_full_queue",
        of=NOCTAYA,
        default=100,
        good=(1,),
        bad=(0,),
    ),
    *(
        field(
            f"spec.endpoint.resources.{part}.{name}",
            "quantity",
            _WARNINGS,
            of=NOCTAYA,
            good=_AMOUNTS,
            bad=("much",),
        )
        for part in ("requests", "limits")
        for name in ("cpu", "memory")
    ),
    field(
        "spec.endpoint.authentication.secretRef.name",
        "string",
        f"{_AUTH}::test_the_key_opens_and_goes_no_further",
        "tests/lifecycle/test_openai_package.py::test_keys_and_their_rotation",
        of=NOCTAYA,
        within=_KEY,
        bad=(GONE,),
    ),
    field(
        "spec.endpoint.authentication.secretRef.key",
        "string",
        unstored("authentication without key"),
        "tests/lifecycle/test_openai_package.py::test_keys_and_their_rotation",
        of=NOCTAYA,
        within=_KEY,
        bad=(GONE,),
    ),
    field("spec.endpoint.coldStart", "object", FIELD, of=HEARTH),
    field(
        "spec.endpoint.coldStart.mode",
        "string",
        f"{_LIFE}::test_a_cold_stream_beats_and_speaks",
        f"{_LIFE}::test_reject_says_when_to_come_back_and_wakes_all_the_same",
        default="keepalive",
        good=("keepalive", "reject"),
        bad=("hold",),
    ),
    field(
        "spec.endpoint.coldStart.heartbeatInterval",
        "duration",
        f"{_COLD}::test_heartbeats_are_one_line_each_and_no_blank_line_stands_before_the_first_event",
        unstored("no heartbeatInterval"),
        default="10s",
        good=("500ms",),
        bad=("0s", "-1s"),
    ),
    field(
        "spec.imagePullSecrets",
        "object array",
        served("pull secrets", "a Job on the nodes of the pods"),
    ),
    field(
        "spec.imagePullSecrets[].name",
        "string",
        "tests/reconcile/render/test_deployment.py::test_placement_and_pull_secrets",
        of=HEARTH,
        default="",
    ),
]
ROWS = [*MODEL, *RUNTIME, *RESOURCES, *SCALING, *CACHE, *ENDPOINT]
