"""What the gateway needs to know of one service."""

import datetime

from hearth.api.llmservice import LLMService
from hearth.api.options import Options
from hearth.reconcile.observation import Facts
from hearth.routes import ColdStart, KeyRef, Refusal, Route


def route(
    service: LLMService,
    *,
    options: Options,
    facts: Facts,
    refusal: Refusal | None,
    phase: str,
    paused: bool,
    scaler_tls: str | None,
) -> Route:
    """The route as of now.  A refused spec still says who may ask: its key is never lost."""
    endpoint = service.spec.endpoint
    secret = endpoint.authentication.secret_ref if endpoint.authentication else None
    # Plain numbers from here on: a route is written out as JSON, and Duration is for people.
    return Route(
        key=service.key,
        uid=service.metadata.uid,
        created=_unix_s(service.metadata.creation_timestamp),
        phase=phase,
        backends=facts.backends,
        cold_start=ColdStart(endpoint.cold_start.mode),
        max_queue=endpoint.max_queue,
        max_in_flight=options.max_in_flight,
        activation_timeout_s=float(service.spec.scaling.activation_timeout),
        heartbeat_s=float(endpoint.cold_start.heartbeat_interval),
        response_timeout_s=options.response_timeout_s,
        idle_timeout_s=options.idle_timeout_s,
        authentication=KeyRef(secret=secret.name, key=secret.key) if secret else None,
        failure=facts.failure,
        refusal=refusal,
        paused=paused,
        scaler_tls=scaler_tls,
    )


def _unix_s(timestamp: str) -> int:
    return int(datetime.datetime.fromisoformat(timestamp).timestamp()) if timestamp else 0
