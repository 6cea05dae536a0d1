"""From one service and its observation to its route: what gateway and scaler read."""

import dataclasses

from hearth.api import options
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest, unix_s
from hearth.api.options import Options
from hearth.reconcile.spec.spec_errors import API_KEY_UNAVAILABLE, CRD_OUTDATED
from hearth.reconcile.status import mounts
from hearth.reconcile.status.observation import Observed, Stage
from hearth.routes import ColdStart, Delay, KeyRef, Route, Scale, SpecRejection


def route(
    service: LLMService,
    *,
    observed: Observed,
    rejection: SpecRejection | None,
    readable: bool,
    phase: str,
    scale: Scale | None,
    paused: bool,
    scaler_tls: str | None,
    engine_keyed: bool = False,
    before: Route | None,
    key_problem: str | None = None,
    warnings: tuple[str, ...] = (),
) -> Route:
    """The route as of now.  A rejected spec keeps its API key.

    Where the cluster itself lost it, nobody is served.  Of a spec that cannot be read the route
    before says who may ask, and how; where there is none, only who.
    """
    lost = rejection is not None and rejection.reason == CRD_OUTDATED
    backends = () if lost else observed.backends
    last = before if before and before.uid == service.metadata.uid else None
    if last is not None and not readable:
        return dataclasses.replace(
            last,
            phase=phase,
            backends=backends,
            failure=observed.failure,
            rejection=rejection,
            delay=_delay(observed, phase, key_problem),
            warnings=warnings,
            scale=scale,
            paused=paused,
            scaler_tls=scaler_tls,
        )
    chosen = _options(service, last)
    endpoint = service.spec.endpoint
    secret = endpoint.authentication.secret_ref if endpoint.authentication else None
    created = service.metadata.creation_timestamp
    # Plain numbers from here on: a route is written out as JSON, and Duration is for people.
    return Route(
        key=service.key,
        uid=service.metadata.uid,
        created=int(unix_s(created)) if created else 0,
        phase=phase,
        backends=backends,
        cold_start=ColdStart(endpoint.cold_start.mode),
        max_queue=endpoint.max_queue,
        max_in_flight=chosen.max_in_flight,
        activation_timeout_s=float(service.spec.scaling.activation_timeout),
        heartbeat_s=float(endpoint.cold_start.heartbeat_interval),
        response_timeout_s=chosen.response_timeout_s,
        idle_timeout_s=chosen.idle_timeout_s,
        authentication=KeyRef(secret=secret.name, key=secret.key) if secret else None,
        # Pods that run decide whether they ask for a key, whatever became of the spec.
        engine_keyed=engine_keyed or any(backend.engine_key for backend in backends),
        failure=observed.failure,
        rejection=rejection,
        delay=_delay(observed, phase, key_problem),
        warnings=warnings,
        scale=scale,
        paused=paused,
        scaler_tls=scaler_tls,
    )


def scale(
    service: LLMService,
    deployment: Manifest | None,
    *,
    is_rejected: bool,
    readable: bool,
    before: Route | None,
) -> Scale | None:
    """What is scaled, and within which bounds; None without a Deployment of this very service.

    | the spec is        | bounds                                            |
    | ------------------ | ------------------------------------------------- |
    | good               | its own                                           |
    | refused            | those of the route before, else its own           |
    | refused unreadable | those of the route before, else nothing is scaled |
    """
    metadata = (deployment or {}).get("metadata", {})
    owners = [o["uid"] for o in metadata.get("ownerReferences", ()) if o.get("controller")]
    if deployment is None or metadata.get("deletionTimestamp") or owners != [service.metadata.uid]:
        return None
    replicas = deployment["spec"].get("replicas", 1)
    pods = (deployment.get("status") or {}).get("replicas", 0)
    last = before.scale if before and before.uid == service.metadata.uid else None
    if is_rejected and last is not None:
        return dataclasses.replace(last, replicas=replicas, pods=pods, uid=metadata.get("uid", ""))
    if not readable:
        return None
    scaling = service.spec.scaling
    return Scale(
        min=scaling.min,
        max=max(scaling.min, scaling.max),
        target=scaling.target,
        window_s=float(scaling.scale_down_stabilization),
        replicas=replicas,
        pods=pods,
        uid=metadata.get("uid", ""),
    )


def _delay(observed: Observed, phase: str, key_problem: str | None) -> Delay | None:
    """Why nobody can be let in; else what the Ready condition says, where it may go on being so: no
    node has room, or a quota, or the weights are not there yet, or a volume is not mounted.

    A container that cannot be started is a failure a moment later, and told as that.
    """
    if key_problem is not None:
        brief = "its API key cannot be checked"
        return Delay(reason=API_KEY_UNAVAILABLE, message=key_problem, brief=brief)
    lasting = observed.stage in (
        Stage.NONE,
        Stage.REFUSED,
        Stage.UNSCHEDULED,
        Stage.PREWARMING,
    ) or (observed.stage is Stage.STARTING and observed.brief == mounts.BRIEF)
    wanted = phase in ("Pending", "Loading")
    # A pod that nobody wants yet would wait for them as well.
    if phase == "ScaledToZero" and observed.stage is Stage.PREWARMING:
        wanted = True
    if not wanted or not lasting or not observed.message:
        return None
    return Delay(reason=observed.stage.value, message=observed.message, brief=observed.brief)


def _options(service: LLMService, last: Route | None) -> Options:
    """Those of a refused spec too; where they are the mistake, the ones before."""
    try:
        return options.parse(service.metadata.annotations)
    except options.BadOption:
        if last is None:
            return Options()
        return Options(
            max_in_flight=last.max_in_flight,
            response_timeout_s=last.response_timeout_s,
            idle_timeout_s=last.idle_timeout_s,
        )
