"""The reference of both custom resources as a Markdown page, from the same models as the CRDs."""

from collections.abc import Iterable, Iterator
from typing import Any

from hearth.api import (
    condition_reasons,
    groups,
    meta,
    options,
    rules,
    runtime_options,
    schema,
)
from hearth.api.schema import Schema

_SHARED = {
    "EnvVar": ("container", "env", "[]"),
    "Toleration": ("accelerator", "tolerations", "[]"),
    "Probe": ("health", "readiness"),
}
"""Types that get a table of their own, and where in a runtime's spec one stands."""

PIPE = r"\|"
"""A bar within a cell of a table."""

_SECOND = (
    "spec.scaling.externalScaler",
    "spec.endpoint.maxQueue",
    "spec.endpoint.resources",
    "spec.endpoint.authentication",
)
"""Fields that the second reference was the first to have, with all below them."""

_CONDITIONS = """\
### Conditions

| Type | Since | `True` | `False` |
| --- | --- | --- | --- |
| `Ready` | 1 | A request would be served: `Available`, or `ScaledToZero` while the service \
sleeps by design. | On the way, with how far it is (`Activating`, `PodsRefused` by a quota, \
`SchedulingDelayed`, `Starting`, `ModelLoading`); or why it is Degraded. |
| `Active` | Hearth | `Available`: at least one pod serves. | `ScaledToZero`, or the reason of \
`Ready`. |
| `Degraded` | 2 | The spec is refused, the backend cannot start, or there is no key to \
check requests with; the reason says which. \
| `Healthy`, `Progressing`, `Inactive`. |
| `AutoscalingReady` | 2 | KEDA's side is configured, KEDA listens, and its HPA can scale. | \
What is missing there. What KEDA complains of during a change of leader does not count. |
| `Warning` | Hearth | Something works, but maybe not as meant. | Never: the condition is absent \
then. |

What waits for `Ready`, such as Helm's `--wait`, Flux, `kubectl wait --for=condition=Ready` and all
that goes by kstatus, takes a service that sleeps as done, and waits for one that wakes or is
Degraded until its own time-out. `kubectl wait --for=condition=Active` waits for a pod that serves.
For a moment after an edit a condition may still be that of the spec before: its
`observedGeneration` tells.
"""

_RUNTIME_OPTIONS = """\
Annotations of an InferenceRuntime; their values are strings, and a mapping is written in one as
YAML or JSON. Strings in it may hold the same templates as `args`. A change rolls the pods of the
runtime's services out once, like any change of a runtime. `hearth local` runs processes, not
containers: it refuses a mistake in them, and heeds none.

```yaml
metadata:
  name: vllm-nvidia
  annotations:
    hearth.dev/pod-runtime-class: nvidia
    hearth.dev/pod-labels: |
      team: serving
      kueue.x-k8s.io/queue-name: "{{ .Service.Namespace }}"
    hearth.dev/pod-annotations: |
      sidecar.istio.io/inject: "false"
    hearth.dev/pod-security-context: |
      runAsNonRoot: true
      runAsUser: 2000
```
"""

_REFUSED = {
    "LLMService": """\
Refused as well. (A service that is stored from before a rule was there is Degraded, in the same
words, until the field is changed; what runs goes on, and its other fields can be edited.)
""",
    "InferenceRuntime": "Refused as well:\n",
}

_REASONS = """\
### Reasons

No condition is without a message; where a reason has nothing of its own to tell, its message is a
sentence like the one here. Several reasons begin a message with the field that is at fault.
"""

_FOLDERS = """\
### Folders of nodes

| Folder | Who uses it |
| --- | --- |
| `/var/lib/hearth/cache/<namespace>/<service>` | `cache.strategy: HostPath` of a service of \
`serving.hearth.dev`; made where it is missing. |
| `/var/lib/hearth/cache/<namespace>-<service>` | The same of a service that the first reference's \
controller made, for as long as its Deployment is there. |
| `/var/lib/noctaya/cache/<namespace>-<service>` | The same in `serving.noctaya.io`, as that \
project had it, so that a filled cache is found. Where two services would share it (`a-b` with \
`c`, and `a` with `b-c`), the later one has `/var/lib/hearth/cache/<namespace>/<service>`. |
| `/usr/local/Ascend/driver`, `/usr/local/bin/npu-smi`, `/usr/local/dcmi`, \
`/etc/ascend_install.info` | Runtimes of vendor `ascend`, read only. |

Nothing deletes them: a folder stays on each node that a pod ran on. What is kept where, and how it
gets there, is in [cache.md](cache.md).
"""

_INTRODUCTION = f"""\
# Custom resources

Made from the models in `hearth/api` by `scripts/generate`; not to be edited.

Both API groups, `{groups.HEARTH}/{groups.VERSION}` and `{groups.NOCTAYA}/{groups.VERSION}`,
have these fields; what one of them demands beyond the other is said below each table.

A *duration* is written as Go and Kubernetes write it: `10s`, `2m`, `1h30m`, `500ms`. A *quantity*
is a Kubernetes quantity: `8`, `500m`, `32Gi`. A default is filled in by the API server, so it can
be seen in the stored object; `-` means that the field may be left out.

*Since* says where a field comes from: 1, the first of the two public references (the group
`{groups.HEARTH}`), 2, the second one (`{groups.NOCTAYA}`), which has those of the first as well.
"""


def text() -> str:
    """The page, `docs/crd.md`."""
    return "\n".join(_page())


def _page() -> Iterator[str]:
    yield _INTRODUCTION
    yield "## LLMService\n\nNamespaced. A model endpoint that sleeps while nobody asks.\n"
    service = schema.of("LLMService", groups.HEARTH)["properties"]
    yield from _table(service["spec"], "spec", shared={})
    yield from _rules("LLMService")
    yield "### Options\n\nAnnotations of an LLMService; their values are strings.\n"
    yield from _options(options.TABLE)
    yield "### LLMService status\n"
    yield from _table(service["status"], "status", shared={})
    yield f"\n{_CONDITIONS}"
    yield from _phases()
    yield from _reasons()
    yield _FOLDERS
    yield "## InferenceRuntime\n\nCluster-scoped. A way to run models, shared by services.\n"
    spec = schema.of("InferenceRuntime", groups.HEARTH)["properties"]["spec"]
    shared = {name: _below(spec, path) for name, path in _SHARED.items()}
    yield from _table(spec, "spec", shared=shared)
    yield from _rules("InferenceRuntime")
    yield f"### Options of a runtime\n\n{_RUNTIME_OPTIONS}"
    yield from _options(runtime_options.TABLE)
    for name, node in shared.items():
        yield f"### {name}\n\nAs Kubernetes has it.\n"
        yield from _table(node, "", shared={})
        yield ""


def _table(node: Schema, path: str, *, shared: dict[str, Schema]) -> Iterator[str]:
    yield "| Field | Type | Default | Since | Description |\n| --- | --- | --- | --- | --- |"
    yield from _rows(node, path, shared)


def _options(table: Iterable[options.Option]) -> Iterator[str]:
    yield "| Annotation | Type | Default | Description |\n| --- | --- | --- | --- |"
    for option in table:
        yield f"| `{option.name}` | {option.type} | {option.default} | {option.description} |"
    yield ""


def _rows(node: Schema, path: str, shared: dict[str, Schema]) -> Iterator[str]:
    required = node.get("required", ())
    for name, item in node["properties"].items():
        at = f"{path}.{name}" if path else name
        items = item.get("items", item)
        kind = next((k for k, other in shared.items() if _alike(items, other)), None)
        default = "required" if name in required else _default(item)
        cells = (f"`{at}`", _type(item, kind), default, since(at), item["description"])
        yield f"| {' | '.join(_escaped(cell) for cell in cells)} |"
        if kind is None and "properties" in items:
            yield from _rows(items, f"{at}[]" if "items" in item else at, shared)


def since(field: str) -> str:
    """Which reference had a field first."""
    return "2" if any(f"{field}.".startswith(f"{first}.") for first in _SECOND) else "1"


def _phases() -> Iterator[str]:
    yield "### Phases\n\n| Phase | Meaning | What to do |\n| --- | --- | --- |"
    for phase, (means, remedy) in condition_reasons.PHASES.items():
        yield f"| `{phase}` | {means} | {remedy} |"
    yield ""


def _reasons() -> Iterator[str]:
    yield f"{_REASONS}\n| Reason | Phase | Where | Meaning | What to do |"
    yield "| --- | --- | --- | --- | --- |"
    for row in condition_reasons.TABLE:
        names = ", ".join(f"`{name}`" for name in row.name.split(", "))
        cells = (names, row.phase, row.where, row.means, row.remedy)
        yield f"| {' | '.join(cell.replace('|', PIPE) for cell in cells)} |"
    yield ""


def _alike(one: Schema, other: Schema) -> bool:
    return "properties" in one and one["properties"] == other["properties"]


def _type(node: Schema, kind: str | None = None) -> str:
    if "items" in node:
        return f"list of {kind or _type(node['items'])}"
    if kind:
        return kind
    if "additionalProperties" in node:
        return "map of string"
    if "enum" in node:
        return ", ".join(f"`{value}`" for value in node["enum"])
    if node.get("pattern") == meta.QUANTITY_PATTERN:
        return "quantity"
    if node.get("pattern") == meta.DURATION_PATTERN:
        return "duration"
    if node.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if node.get("format") == "date-time":
        return "time"
    return f"{node['type']}{_bounds(node)}"


def _bounds(node: Schema) -> str:
    least, most = node.get("minimum"), node.get("maximum")
    if node["type"] != "integer" or least is None or least < -1:
        return ""
    return (
        f", {least} to {most}" if most is not None and most < 2**31 - 1 else f", at least {least}"
    )


def _default(node: Schema) -> str:
    default: Any = node.get("default")
    if default is None or default == {}:
        return "-"
    if isinstance(default, bool):
        return f"`{'true' if default else 'false'}`"
    return f"`{default}`" if default != "" else '`""`'


def _rules(kind: str) -> Iterator[str]:
    yield f"\n{_REFUSED[kind]}"
    for rule in rules.TABLE:
        if rule.kind != kind:
            continue
        at = ".".join(part for part in (rule.path, rule.field) if part)
        only = "" if rule.groups == groups.GROUPS else f" (in {', '.join(rule.groups)})"
        yield f"- `{at}`{only}: {rule.message}"
    yield ""


def _below(node: Schema, path: tuple[str, ...]) -> Schema:
    for step in path:
        node = node["items"] if step == "[]" else node["properties"][step]
    return node


def _escaped(cell: str) -> str:
    return cell.replace("|", PIPE).replace("<", "&lt;")
