"""The rows of InferenceRuntime's spec."""

from typing import Any

from tests.api.samples import GONE
from tests.reference import row
from tests.reference.row import FIELD, HEARTH, refused, served

_SELECTION = "tests/reconcile/spec/test_runtime_selection.py"
_METRICS = (
    "tests/reconcile/render/test_deployment.py"
    "::test_the_service_leads_to_the_named_port_and_announces_metrics"
)
_PROBES = "probes of the runtime's own"
_PORT = "another port"
_PLACED = "volcano, selector and tolerations"
_JOB = "a Job on the nodes of the pods"
_HUB = "a hub's model with all defaults"
_GET = {"httpGet": {"path": "/ready", "port": "http"}}
_MEASURED = (("metrics", {"queueDepth": "waiting"}),)


def field(path: str, type: str, *shows: str | list[str], **more: Any) -> row.Field:
    """A row of an InferenceRuntime."""
    return row.field(path, type, *shows, kind="InferenceRuntime", **more)


_NAMES = [
    field(
        f"spec.metrics.{name}",
        "string",
        "tests/reference/test_claims.py::test_names_of_metrics_are_for_others",
        within=_MEASURED,
        good=("engine:x",),
    )
    for name in ("kvCacheUtil", "running", "ttft")
]
ROWS = [
    field("spec.family", "string", FIELD, default="vllm", good=("vllm",), bad=("other",)),
    field(
        "spec.vendor",
        "string",
        served(_HUB, "ascend"),
        good=("nvidia", "ascend"),
        bad=(GONE, "amd"),
    ),
    field(
        "spec.priority",
        "integer",
        refused("two runtimes alike"),
        f"{_SELECTION}::test_by_name_by_vendor_then_by_priority",
        default=0,
        good=(-1, 100),
    ),
    field("spec.container", "object", FIELD, of=HEARTH, bad=(GONE,)),
    field("spec.container.image", "string", served(_HUB), bad=(GONE,)),
    field(
        "spec.container.args",
        "string array",
        served(_HUB),
        "tests/reconcile/render/test_container_args.py::test_refusals_name_runtime_field_and_text",
    ),
    field("spec.container.env", "env", served("variables of the runtime's")),
    field("spec.container.port", "object", FIELD, of=HEARTH, good=({},)),
    field("spec.container.port.name", "string", served(_PORT), default="http", bad=("UPPER",)),
    field(
        "spec.container.port.containerPort",
        "integer",
        served(_PORT),
        default=8000,
        good=(1, 65535),
        bad=(0, 65536),
    ),
    field("spec.accelerator", "object", FIELD, of=HEARTH, bad=(GONE,)),
    field("spec.accelerator.resourceName", "string", served(_HUB, "ascend"), bad=(GONE,)),
    field("spec.accelerator.sharing", "object", FIELD, of=HEARTH, good=({},)),
    field(
        "spec.accelerator.sharing.supported",
        "boolean",
        "tests/reference/test_claims.py::test_what_is_only_informational_changes_nothing",
        default=False,
        good=(True,),
    ),
    field("spec.accelerator.nodeSelector", "string map", served(_PLACED, _JOB)),
    field("spec.accelerator.tolerations", "tolerations", served(_PLACED, _JOB)),
    field("spec.accelerator.scheduler", "object", FIELD, of=HEARTH, good=({},)),
    field("spec.accelerator.scheduler.name", "string", served(_PLACED, _JOB), default=""),
    field(
        "spec.accelerator.scheduler.queue",
        "string",
        served(_PLACED, _JOB),
        refused("a queue of another scheduler"),
        within=(("accelerator__scheduler", {"name": "volcano"}),),
        good=("models",),
    ),
    field("spec.health", "object", FIELD, of=HEARTH),
    field("spec.health.readiness", "probe", served(_HUB, _PROBES), good=(_GET,), bad=({},)),
    field("spec.health.liveness", "probe", served(_HUB, _PROBES), good=(_GET,), bad=({},)),
    field(
        "spec.health.startup",
        "probe",
        served(_HUB, _PROBES, "a long activation"),
        good=(_GET,),
        bad=({},),
    ),
    field("spec.lifecycle", "object", FIELD, of=HEARTH),
    field(
        "spec.lifecycle.terminationGracePeriodSeconds",
        "integer",
        served("draining in less than the pod's own grace", "no draining"),
        good=(1, 600),
        bad=(0,),
    ),
    field(
        "spec.lifecycle.preStopDrain",
        "boolean",
        served("draining", "no draining"),
        default=False,
        good=(True,),
    ),
    field("spec.metrics", "object", FIELD, of=HEARTH, good=(GONE,)),
    field("spec.metrics.path", "string", _METRICS, default="/metrics", within=_MEASURED),
    field("spec.metrics.port", "string", _METRICS, default="http", within=_MEASURED),
    field(
        "spec.metrics.queueDepth",
        "string",
        "tests/reference/test_claims.py::test_names_of_metrics_are_for_others",
        within=_MEASURED,
        bad=(GONE,),
    ),
    *_NAMES,
]
