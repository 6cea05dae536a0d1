"""Give requests their endpoints in the order they came; hold those for which there is none yet."""

import bisect
import itertools
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.proxy import error_messages
from hearth.proxy.errors import ERROR_STATUSES, ErrorCode, GatewayError
from hearth.proxy.routing import admission, retry_after
from hearth.proxy.routing.load_balancer import LoadBalancer
from hearth.proxy.routing.retry_after import RetryAfterEstimate
from hearth.proxy.routing.usable_endpoints import Availability, UsableEndpoints
from hearth.routes import Backend, Route, RouteTable

CLIENT_DELAY_S = 5.0
"""How much later than it was told to a client may come, at least."""


class EndpointSlot:
    """One request's place on one endpoint; `release` gives it back exactly once."""

    __slots__ = ("_queue", "backend", "key")

    def __init__(self, queue: "EndpointQueue", key: ServiceKey, backend: Backend) -> None:
        self._queue: EndpointQueue | None = queue
        self.key = key
        self.backend = backend

    def release(self) -> None:
        """Give the place to who waits longest.  Idempotent."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue._released(self.key, self.backend)


class Waiter(Protocol):
    """A request in line.  One of its methods is called, once, unless it leaves before."""

    ticket: int

    def slot_granted(self, place: EndpointSlot) -> None:
        """Its turn has come."""
        ...

    def waiting_ended(self, problem: GatewayError) -> None:
        """Waiting has no use any more."""
        ...


class EndpointQueue:
    """Who waits for which service.  Woken by the tables; nobody polls.

    A place is given in the tick in which it becomes free, so no newcomer overtakes.
    """

    def __init__(
        self,
        *,
        routes: RouteTable,
        demand: DemandTable,
        endpoints: UsableEndpoints,
        balancer: LoadBalancer,
        ready_grace_s: float,
        brief_errors: bool,
        clock: Callable[[], float],
        on_change: Callable[[ServiceKey], None],
        restarts_soon: bool = True,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`on_change(key)` is called when somebody begins to wait, and with each new lease.
        `restarts_soon`: see GatewayConfig."""
        self._routes = routes
        self._demand = demand
        self._endpoints = endpoints
        self._balancer = balancer
        self._ready_grace_s = ready_grace_s
        self._margin_s = max(ready_grace_s, CLIENT_DELAY_S)
        self._brief_errors = brief_errors
        self._clock = clock
        self._wall = wall
        self._on_change = on_change
        self._restarts_soon = restarts_soon
        self._retry_after = RetryAfterEstimate()
        self._waiters: dict[ServiceKey, list[Waiter]] = {}
        self._dispatching: set[ServiceKey] = set()
        self._in_flight: defaultdict[ServiceKey, int] = defaultdict(int)
        self._uids = {r.key: {b.uid for b in r.backends} for r in routes.routes()}
        self._tickets = itertools.count()
        self._stopping = False
        endpoints.listen(self._changed)

    def next_ticket(self) -> int:
        """A request's number in the order of arrival; it keeps it when it must wait again."""
        return next(self._tickets)

    def waiting(self, key: ServiceKey) -> int:
        """Requests held now."""
        return len(self._waiters.get(key, ()))

    def in_flight(self, key: ServiceKey) -> int:
        """Requests forwarded and not finished."""
        return self._in_flight.get(key, 0)

    def is_wanted(self, key: ServiceKey) -> bool:
        """Whether somebody waits, or an activation lease runs."""
        return bool(self._waiters.get(key)) or self._demand.leased(key)

    def begin_activation(self, route: Route) -> None:
        """A request met no endpoint: an activation that began may finish, client or none."""
        limit_s = route.activation_timeout_s
        self._demand.renew_lease(route.key, seconds=limit_s)
        if route.failure is None:  # else the kubelet's attempts began without it
            pods = bool(route.backends) or (route.scale is not None and route.scale.pods > 0)
            self._retry_after.activation_began(
                route.key, now=self._clock(), limit_s=limit_s, pods=pods
            )
        self._on_change(route.key)

    def begin_waiting(self, route: Route, *, is_demand: bool) -> None:
        """A request has no slot: see to it that there will be one.

        One that is no demand starts nothing.  Raises what a client hears at once.
        """
        decision = self.decide(route)
        if not is_demand and not isinstance(decision, admission.Wait | admission.Refuse):
            raise self.starts_nothing(route.key)
        match decision:
            case admission.Hold():
                self.begin_activation(route)
            case admission.Reject(problem):
                self.begin_activation(route)
                raise self.promise_retry(route.key, problem)
            case admission.Refuse(problem):
                raise problem
            case _:
                pass

    def starts_nothing(self, key: ServiceKey) -> GatewayError:
        """What a request that is no demand hears for which there is no endpoint, or no free one."""
        if self._endpoints.usable(key):
            return error_messages.all_busy(key)
        retry_after_s = self.retry_after_s(key) if self.is_wanted(key) else None
        return error_messages.not_an_inference_request(key, retry_after_s)

    def promise_retry(self, key: ServiceKey, problem: GatewayError) -> GatewayError:
        """`problem`, which a client is told.  Where it says when to come again to a service that
        starts, that stays wanted until then, and a moment longer, ready or not."""
        if problem.retry_after_s is not None and ERROR_STATUSES[problem.code].starting:
            self._demand.promise(key, seconds=problem.retry_after_s + self._margin_s)
        return problem

    def decide(self, route: Route) -> admission.Decision:
        """What becomes of a request that has no place."""
        return admission.decide(
            route,
            availability=self._endpoints.availability(route.key),
            retry_after_s=self.retry_after_s(route.key),
            brief=self._brief_errors,
            probe=self._routes.settled_probe(route.key),
        )

    def retry_after_s(self, key: ServiceKey) -> int:
        """When a client that is sent away should come back: an estimate, 1 to 59."""
        route = self._routes.find(key)
        if route is None or route.failure is None:
            return self._retry_after.retry_after_s(key, now=self._clock())
        at = route.failure.attempt_at
        in_s = None if at is None else at - self._wall()
        return self._retry_after.after_failure_s(key, attempt_in_s=in_s)

    def try_acquire(self, key: ServiceKey) -> EndpointSlot | None:
        """A place at once; None where there is none, or others wait already."""
        backend = self.peek(key)
        return None if backend is None else self.acquire(key, backend)

    def peek(self, key: ServiceKey) -> Backend | None:
        """Where `try_acquire` would give a slot; nothing is acquired, so no turn is lost."""
        return None if key in self._waiters else self._pick(key)

    def acquire(self, key: ServiceKey, backend: Backend) -> EndpointSlot:
        """The slot that `peek` has just named."""
        self._balancer.start(backend.uid)
        self._in_flight[key] += 1
        return EndpointSlot(self, key, backend)

    def enqueue(self, key: ServiceKey, waiter: Waiter) -> EndpointSlot | None:
        """A place at once; else `waiter` stands in line, by its ticket, until it leaves.

        Raises GatewayError, as `waiting_ended` is told it later, where waiting has no use:
        activation_failed, service_degraded, model_not_found, shutting_down.
        """
        place = self.try_acquire(key)
        if place is not None:
            return place
        problem = self._waiting_error(key)
        if problem is not None:
            raise problem
        bisect.insort(self._waiters.setdefault(key, []), waiter, key=_ticket)
        self._on_change(key)
        return None

    def leave(self, key: ServiceKey, waiter: Waiter) -> None:
        """It waits no longer.  Idempotent."""
        line = self._waiters.get(key, [])
        at = bisect.bisect_left(line, waiter.ticket, key=_ticket)
        if at < len(line) and line[at] is waiter:
            del line[at]
        if not line:
            self._waiters.pop(key, None)

    def timeout_error(self, key: ServiceKey) -> GatewayError:
        """What a request hears that has waited too long: activation_timeout, or overloaded where
        there are endpoints, but busy ones."""
        route = self._routes.find(key)
        if route is None:
            return error_messages.model_deleted()
        availability = self._endpoints.availability(key)
        if availability is Availability.USABLE:
            return GatewayError(
                ErrorCode.OVERLOADED,
                f"Every replica of {key} was busy for as long as a request may wait; try again.",
            )
        return GatewayError(
            ErrorCode.ACTIVATION_TIMEOUT,
            admission.timeout_message(
                route,
                availability,
                probe=self._routes.probe(key),
                lasts_s=max(self._demand.lease_s(key), retry_after.OVERDUE_S + self._margin_s),
                brief=self._brief_errors,
            ),
            retry_after_s=retry_after.OVERDUE_S,
        )

    def stop(self) -> None:
        """Hold nobody any more."""
        self._stopping = True
        for key in tuple(self._waiters):
            self._dispatch(key)

    def _waiting_error(self, key: ServiceKey) -> GatewayError | None:
        if self._stopping:
            return shutting_down(restarts_soon=self._restarts_soon)
        route = self._routes.find(key)
        if route is None:
            return error_messages.model_deleted()
        match self.decide(route):
            case admission.Reject(problem) | admission.Refuse(problem):
                return problem
            case _:
                return None

    def _pick(self, key: ServiceKey) -> Backend | None:
        route = self._routes.find(key)
        if route is None:
            return None
        return self._balancer.pick(
            self._endpoints.usable(key), limit=route.max_in_flight, now=self._clock()
        )

    def _dispatch(self, key: ServiceKey) -> None:
        """Give free places to who waits, in order; end the waiting that has no use."""
        if key in self._dispatching:
            # Whoever is called below may free a place: the loop that called it goes on.
            return
        self._dispatching.add(key)
        try:
            while line := self._waiters.get(key):
                outcome = self._waiting_error(key) or self._pick(key)
                if outcome is None:
                    return
                waiter = line.pop(0)
                if not line:
                    del self._waiters[key]
                if isinstance(outcome, GatewayError):
                    waiter.waiting_ended(outcome)
                else:
                    waiter.slot_granted(self.acquire(key, outcome))
        finally:
            self._dispatching.discard(key)

    def _released(self, key: ServiceKey, backend: Backend) -> None:
        self._balancer.finish(backend.uid)
        if backend.uid not in self._uids.get(key, ()):
            self._balancer.forget((backend.uid,))
        self._in_flight[key] -= 1
        if not self._in_flight[key]:
            del self._in_flight[key]
        if key in self._waiters:
            self._dispatch(key)

    def _changed(self, key: ServiceKey) -> None:
        route = self._routes.find(key)
        uids = {b.uid for b in route.backends} if route else set()
        self._balancer.forget(self._uids.get(key, set()) - uids)
        self._uids[key] = uids
        if route is None:
            del self._uids[key]
        if self._endpoints.usable(key):
            self._retry_after.became_ready(key, now=self._clock())
            self._demand.end_lease(key, grace_s=self._ready_grace_s)
        elif route is None:
            self._retry_after.remove(key)
        elif admission.final_error(route, retry_after_s=0, brief=True) is not None:
            self._retry_after.attempt_failed(key)
        self._dispatch(key)
        if route is not None and self._needs_start(route):
            self.begin_activation(route)
        else:
            self._on_change(key)

    def _needs_start(self, route: Route) -> bool:
        """Whether who waited for a check, or for its turn, now waits for a start that nobody has
        asked for.  What is no demand asks for none."""
        key = route.key
        return (
            bool(self._waiters.get(key))
            and self._demand.pending(key) > 0
            and not self._demand.leased(key)
            and isinstance(self.decide(route), admission.Hold)
        )


def shutting_down(*, restarts_soon: bool) -> GatewayError:
    """What a request hears while the gateway drains.  `restarts_soon`: see GatewayConfig."""
    if restarts_soon:
        message = "The gateway is restarting; send the request again in a moment."
    else:
        message = "The gateway is stopping; send the request again once it is up again."
    return GatewayError(ErrorCode.SHUTTING_DOWN, message)


def _ticket(waiter: Waiter) -> int:
    return waiter.ticket
