"""Every reason of a condition or an Event of an LLMService: what it means, and what to do.

The page for people is made of it; a test holds it to the code that uses the reasons.
"""

from typing import NamedTuple


class ConditionReason(NamedTuple):
    """One reason, as the page shows it."""

    name: str
    phase: str
    """That the service has with it; `-` where it says nothing of that."""
    where: str
    """Conditions and their status, or `Event`."""
    means: str
    remedy: str


_ON_THE_WAY = "`Ready` False"
_FAILED = "`Ready` False, `Degraded` True"
_REFUSED = "`Ready`, `AutoscalingReady` False, `Degraded` True"
_SCALING = "`AutoscalingReady` False"
_NOTHING = "Nothing."

TABLE = (
    # On the way, and there.
    ConditionReason(
        "ScaledToZero", "ScaledToZero", "`Ready` True, `Active` False",
        "Nobody asks, so no pod runs.", "Nothing: the next request starts one.",
    ),
    ConditionReason(
        "Inactive", "ScaledToZero", "`Degraded` False", "No backend is wanted.", _NOTHING,
    ),
    ConditionReason(
        "Activating", "Pending", _ON_THE_WAY,
        "The backend is wanted, and its Deployment has no pod yet.",
        "Nothing. If it lasts, look at the Events of the Deployment, and whether KEDA scales it "
        "(`AutoscalingReady`).",
    ),
    ConditionReason(
        "PodsRefused", "Pending, or Degraded", f"{_ON_THE_WAY}; or {_FAILED}",
        "The cluster lets no pod in: a quota is used up, or Pod security or a webhook denies it.",
        "Raise the quota (the pods then come by themselves), or change what the message names.",
    ),
    ConditionReason(
        "SchedulingDelayed", "Loading", _ON_THE_WAY,
        "No node takes the pod; the message has the scheduler's words, and names a claim that is "
        "not bound.",
        "Free or add a node with the device, correct `nodeSelector` or `tolerations` of the "
        "runtime, or provide the claim. It goes on by itself.",
    ),
    ConditionReason(
        "Prewarming", "Pending, Loading", _ON_THE_WAY,
        "The weights are not there yet: the message says how far the prewarm Job is.",
        "Nothing. If it lasts, look at the Job `<service>-prewarm` and its pod.",
    ),
    ConditionReason(
        "Starting", "Loading", _ON_THE_WAY,
        "A node has the pod: it mounts volumes, pulls the image and starts the container.",
        "Nothing. Where the message names a volume, look at the Events of the pod.",
    ),
    ConditionReason(
        "ModelLoading", "Loading", _ON_THE_WAY,
        "The engine runs; its readiness probe fails so far. The message has what it answered.",
        "Nothing. Of a 404, correct `health.readiness` of the runtime; of a slow model, raise "
        "`failureThreshold` of `health.startup`.",
    ),
    ConditionReason(
        "Progressing", "Pending, Loading", "`Degraded` False, `AutoscalingReady` Unknown",
        "The backend is on its way; or the ScaledObject is not written or judged yet.", _NOTHING,
    ),
    ConditionReason(
        "Available", "Ready", "`Ready`, `Active` True", "At least one pod serves.", _NOTHING,
    ),
    ConditionReason("Healthy", "Ready", "`Degraded` False", "The backend serves.", _NOTHING),
    # The backend cannot start.
    ConditionReason(
        "ImagePullFailed", "Degraded", _FAILED, "The image cannot be pulled.",
        "Correct `container.image` of the runtime, or name the registry's Secret in "
        "`spec.imagePullSecrets`.",
    ),
    ConditionReason(
        "CreateContainerFailed", "Degraded", _FAILED,
        "The container cannot be created: often a Secret or ConfigMap of its env is missing.",
        "Create what the message names.",
    ),
    ConditionReason(
        "OOMKilled", "Degraded", _FAILED, "The engine was killed for want of memory, twice.",
        "Raise `spec.resources.memory`, or let the engine use less.",
    ),
    ConditionReason(
        "CrashLoopBackOff", "Degraded", _FAILED,
        "The engine ends again and again; the message has the end of its log.",
        "Read the log; correct the arguments of the runtime or `argsOverride`. The next request "
        "is another try.",
    ),
    ConditionReason(
        "ContainerRestarting", "Degraded", _FAILED,
        "The container was restarted twice since the service was wanted.",
        "As for `CrashLoopBackOff`; a liveness probe may be too strict.",
    ),
    ConditionReason(
        "ProgressDeadlineExceeded", "Degraded", _FAILED,
        "The pods were not ready in the time that the startup probe and the scheduler have.",
        "Look at the pod; raise `failureThreshold` of `health.startup` for a slow model.",
    ),
    ConditionReason(
        "PrewarmFailed", "Degraded", _FAILED,
        "The Job that fetches the weights failed; the message has what it said last.",
        "Mend what it names (a token, room on the volume, the way to the hub), then delete the "
        "Job: it runs again.",
    ),
    ConditionReason(
        "APIKeyUnavailable", "Degraded", _FAILED,
        "The Secret with the API key is missing, empty, or may not be read.",
        "Create it, or correct `spec.endpoint.authentication.secretRef`.",
    ),
    # The spec is refused; what runs goes on.
    ConditionReason(
        "ModelResolution", "Degraded", _REFUSED, "`spec.model` names nothing that can be served.",
        "Set `spec.model.source.uri` as the message says.",
    ),
    ConditionReason(
        "RuntimeResolution", "Degraded", _REFUSED,
        "`spec.runtime` finds no InferenceRuntime, or several of equal priority.",
        "Set `spec.runtime.name` to one that the message lists, or apply one in the service's API "
        "group.",
    ),
    ConditionReason(
        "Render", "Degraded", _REFUSED,
        "A field of the service or its runtime cannot be had, or the cluster refuses an object.",
        "Change the field that the message begins with.",
    ),
    ConditionReason(
        "ScaledObject", "Degraded", _REFUSED,
        "A field of `spec.scaling` cannot be had, or the cluster refuses the ScaledObject.",
        "Change the field that the message begins with.",
    ),
    ConditionReason(
        "Prewarm", "Degraded", _REFUSED,
        "Weights of `oci://` are pulled before an engine starts, and there is no cache for them.",
        "Set `spec.cache.strategy` to NodeLocalPVC, SharedPVC or HostPath.",
    ),
    ConditionReason(
        "PrewarmChanged", "Degraded", _REFUSED,
        "The prewarm Job was written for another source or strategy, and a Job is written once.",
        "Undo the change, or delete the Job: it is written anew.",
    ),
    ConditionReason(
        "ClaimChanged", "Degraded", _REFUSED,
        "The cache's claim was written with another size, class or access mode.",
        "Undo the change, or save what you need and delete the claim.",
    ),
    ConditionReason(
        "NameTaken", "Degraded", _REFUSED,
        "A service of this name was there before in the other API group.",
        "Delete one of the two, or choose another name.",
    ),
    ConditionReason(
        "NotOwned", "Degraded", _REFUSED,
        "An object of a name that Hearth writes is somebody else's.",
        "Delete or rename it, or rename the service.",
    ),
    ConditionReason(
        "CRDOutdated", "Degraded", _REFUSED,
        "The cluster's CRDs lack a field that says who may use a service.",
        "Upgrade them: `hearth crd | kubectl apply --server-side --force-conflicts -f -`.",
    ),
    # Autoscaling.
    ConditionReason(
        "ScaledObjectApplied", "-", "`AutoscalingReady` True",
        "The ScaledObject is written, and KEDA scales by demand.", _NOTHING,
    ),
    ConditionReason(
        "KEDAMissing", "-", _SCALING, "The cluster has no ScaledObject kind.",
        "Install KEDA; until then Hearth scales by itself.",
    ),
    ConditionReason(
        "KEDANotConnected", "-", _SCALING, "KEDA holds no push stream open for this service.",
        "See whether KEDA's operator runs, what its log says, and whether it may reach Hearth's "
        "scaler port.",
    ),
    ConditionReason(
        "NotReady", "-", _SCALING, "KEDA says that the ScaledObject is not ready, and not why.",
        "Look at the ScaledObject and at the log of KEDA's operator.",
    ),
    ConditionReason(
        "Paused", "-", _SCALING, "An annotation of the ScaledObject pauses KEDA.", "Remove it.",
    ),
    ConditionReason(
        "ScalerCertificate", "-", _SCALING,
        "The certificate that KEDA is shown cannot be used.",
        "Correct the Secret of `externalScaler.tls.serverSecretName`.",
    ),
    ConditionReason(
        "ScaledObjectDeleting", "-", _SCALING,
        "The ScaledObject is being deleted and waits for its finalizers.",
        "Let KEDA run; else remove its finalizer.",
    ),
    ConditionReason(
        "HPADidNotScale", "-", f"{_SCALING}, Event",
        "The HPA added no replicas though demand asks for more, so Hearth did.",
        "See whether KEDA's metrics server runs, and what the HPA's conditions say.",
    ),
    ConditionReason(
        "HPANotActive", "-", _SCALING, "The HPA cannot scale between 1 and max.",
        "Look at the HPA's conditions.",
    ),
    ConditionReason(
        "KEDADidNotScale", "-", "Event",
        "KEDA did not start a service that is wanted, so Hearth did.",
        "Look at the log of KEDA's operator.",
    ),
    ConditionReason(
        "TriggerError, PartialTriggerError, HPAMetricsUnavailable, ScalingDegraded, FailedGet…",
        "-", f"{_SCALING} or Unknown", "KEDA's or the HPA's own: the scaler did not respond to it.",
        "See whether KEDA reaches Hearth's scaler port, and the log of its operator.",
    ),
    # Others.
    ConditionReason(
        "CheckSpec", "-", "`Warning` True",
        "Something works, but maybe not as meant; a sentence each.",
        "Change the field that each sentence begins with, or leave it.",
    ),
    ConditionReason(
        "Recovered", "-", "Event", "What the message names is over.", _NOTHING,
    ),
    ConditionReason(
        "Adopted", "-", "Event",
        "Objects that Hearth wrote for a service of this name, and that none owned, are this "
        "service's now.",
        _NOTHING,
    ),
    ConditionReason(
        "TakenOver", "-", "Event",
        "Objects that another controller applied for this very service are kept by Hearth now.",
        "Nothing, if the other controller has stopped.",
    ),
)  # fmt: skip
"""In the order of the page."""

PHASES = {
    "Pending": ("The backend is wanted, and has no pod yet.", "Nothing, if it passes."),
    "Loading": (
        "There are pods, and none is ready.",
        "Nothing, if it passes; the message of `Ready` says how far they are.",
    ),
    "Ready": ("At least one pod is ready.", "Nothing."),
    "ScaledToZero": ("Nobody asks, so there is no pod.", "Nothing: the next request starts one."),
    "Degraded": (
        "The spec is refused, the backend cannot start, or no key can be checked. What runs goes "
        "on.",
        "What the reason of `Degraded` asks for.",
    ),
}
"""What each phase means, and what to do."""
