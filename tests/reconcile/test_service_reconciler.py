"""What is there after a pass of the reconciler over the in-memory cluster."""

import pytest

from hearth import names
from hearth.cluster import kinds
from hearth.cluster.interface import Forbidden, Invalid, NotFound, Terminating, Unavailable
from hearth.routes import ColdStart, KeyRef
from tests.reconcile.reconciler_fixture import ALL, HEARTH, KEY, NOCTAYA, ReconcilerFixture


@pytest.fixture
async def world():
    return ReconcilerFixture()


@pytest.mark.reference("status.resolvedRuntime", "status.endpointURL")
async def test_a_service_gets_its_objects_a_route_and_a_status(world):
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    assert await world.objects() == ALL
    deployment = await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    assert deployment["spec"]["replicas"] == 0
    route = world.routes.find(KEY)
    assert (route.phase, route.rejection, route.backends) == ("ScaledToZero", None, ())
    status = (await world.service())["status"]
    assert status["phase"] == "ScaledToZero" and status["resolvedRuntime"] == "stub"
    assert status["endpointURL"] == "http://chat.ai.svc/v1"


async def test_a_second_pass_writes_nothing(world):
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    await world.reconcile_once()  # the ScaledObject is seen now: one more status
    world.cluster.written.clear()
    await world.reconcile_once()
    assert world.cluster.written == []


async def test_a_pass_may_be_repeated_before_its_watch_events(world):
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    await world.reconciler.reconcile(KEY)
    assert await world.objects() == ALL


async def test_a_foreign_object_is_left_alone_and_named(world):
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat-backend", "namespace": "ai"},
        "spec": {"ports": [{"port": 1}]},
    }
    stored = await world.cluster.create(foreign)
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    assert await world.objects() == ["Service/chat-backend"]
    assert (await world.cluster.get(kinds.SERVICE, "ai", "chat-backend")) == stored
    assert (await world.conditions())["Degraded"] == ("True", "NotOwned")
    assert "chat-backend" in world.routes.find(KEY).rejection.message
    assert await world.reconcile_once()  # again: nobody will tell when it is gone
    await world.cluster.delete(stored)
    await world.reconcile_once()
    assert await world.objects() == ALL


async def test_a_missing_runtime_is_a_condition_until_it_is_created(world):
    await world.user("LLMService")
    await world.reconcile_once()
    assert (await world.conditions())["Degraded"] == ("True", "RuntimeResolution")
    assert world.routes.find(KEY).rejection.reason == "RuntimeResolution"
    world.asked.clear()
    await world.runtime()
    await world.sync()
    assert world.asked == {KEY}
    await world.reconcile_once()
    assert (await world.conditions())["Degraded"] == ("False", "Inactive")
    assert world.routes.find(KEY).rejection is None and await world.objects() == ALL


@pytest.mark.reference("text.heals")
async def test_a_rejected_edit_changes_nothing_that_runs(world):
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    before = await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    spec = {
        "model": {"source": {"uri": "hf://org/m"}},
        "runtime": {"name": "stub"},
        "cache": {"strategy": "BakedImage"},
    }
    await world.user("LLMService", spec=spec)
    await world.reconcile_once()
    assert await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat") == before
    assert (await world.conditions())["Degraded"] == ("True", "Render")
    assert await world.objects() == ALL


PLAIN = {"model": {"source": {"uri": "hf://org/m"}}, "runtime": {"name": "stub"}}
TLS = {"serverSecretName": "s", "authenticationRef": {"name": "a"}}
SECURE = {**PLAIN, "scaling": {"externalScaler": {"tls": TLS}}}
BAD = {"cache": {"strategy": "BakedImage"}}


async def test_mutual_tls_has_a_name_that_comes_and_goes_with_it(world):
    await world.runtime()
    await world.user("LLMService", spec=SECURE)
    await world.reconcile_once()
    assert set(await world.objects()) - set(ALL) == {"Service/chat-scaler"}
    assert world.routes.find(KEY).scaler_tls == "s"
    await world.user("LLMService", spec=PLAIN)
    await world.reconcile_once()
    assert await world.objects() == ALL
    assert world.routes.find(KEY).scaler_tls is None


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        (PLAIN, {**SECURE, **BAD}, None),
        (SECURE, {**PLAIN, **BAD}, "s"),
        ({**SECURE, **BAD}, {**SECURE, **BAD}, "s"),
    ],
)
async def test_after_a_rejected_edit_scaler_tls_is_that_of_the_scaled_object(
    world, first, then, expected
):
    await world.runtime()
    await world.user("LLMService", spec=first)
    await world.reconcile_once()
    await world.user("LLMService", spec=then)
    await world.reconcile_once()
    assert world.routes.find(KEY).rejection is not None
    assert world.routes.find(KEY).scaler_tls == expected


async def test_a_bad_scaler_certificate_is_a_condition(world):
    await world.runtime()
    await world.user("LLMService", spec=SECURE)
    world.certificates[KEY] = "Secret s has no tls.key"
    await world.reconcile_once()
    assert (await world.conditions())["AutoscalingReady"] == ("False", "ScalerCertificate")
    del world.certificates[KEY]
    await world.reconcile_once()
    assert (await world.conditions())["AutoscalingReady"] == ("True", "ScaledObjectApplied")


async def test_a_service_that_cannot_be_parsed_is_rejected(world):
    await world.runtime()
    await world.user("LLMService", spec={"model": {"source": {"uri": 7}}})
    await world.reconcile_once()
    assert (await world.conditions())["Ready"] == ("False", "Render")
    assert "spec.model.source.uri" in world.routes.find(KEY).rejection.message


ASKED = {
    "maxQueue": 7,
    "coldStart": {"mode": "reject"},
    "authentication": {"secretRef": {"name": "s", "key": "k"}},
}
TOO_LONG = {"scaling": {"activationTimeout": "9999999h"}}


@pytest.mark.parametrize("ran", [True, False])
async def test_an_edit_that_cannot_be_read_keeps_the_api_key(world, ran):
    await world.runtime()
    await world.user("LLMService", spec={**PLAIN, "endpoint": ASKED})
    if ran:
        await world.reconcile_once()
    await world.user("LLMService", spec={**PLAIN, "endpoint": ASKED, **TOO_LONG})
    await world.reconcile_once()
    route = world.routes.find(KEY)
    assert route.rejection is not None and route.authentication == KeyRef(secret="s", key="k")
    assert not ran or (route.max_queue, route.cold_start) == (7, ColdStart.REJECT)


@pytest.mark.parametrize(
    ("annotation", "spec", "expected"),
    [("4", {**PLAIN, **BAD}, 4), ("lots", PLAIN, 3), ("lots", {**PLAIN, **BAD}, 3)],
)
async def test_a_rejected_edit_does_not_raise_max_in_flight(world, annotation, spec, expected):
    def named(value):
        annotations = {"hearth.dev/max-in-flight": value}
        return {"name": "chat", "namespace": "ai", "annotations": annotations}

    await world.runtime()
    await world.user("LLMService", metadata=named("3"))
    await world.reconcile_once()
    await world.user("LLMService", spec=spec, metadata=named(annotation))
    await world.reconcile_once()
    assert world.routes.find(KEY).rejection is not None
    assert world.routes.find(KEY).max_in_flight == expected


async def test_of_two_services_of_one_name_the_later_writes_nothing(world):
    await world.runtime()
    await world.runtime(group=NOCTAYA)
    await world.user("LLMService", group=NOCTAYA)
    await world.user("LLMService")  # in the same second: ours has the name
    await world.reconcile_once()
    assert (await world.conditions(group=NOCTAYA))["Degraded"] == ("True", "NameTaken")
    assert (await world.conditions())["Degraded"] == ("False", "Inactive")
    owner = (await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat"))["metadata"][
        "ownerReferences"
    ][0]
    assert owner["apiVersion"] == f"{HEARTH}/v1alpha1"


async def test_a_failed_status_write_of_the_later_service_does_not_stop_the_first(world):
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    await world.user("LLMService", group=NOCTAYA)
    world.cluster.answers[("status", "LLMService")] = Invalid("no such field")
    await world.user("LLMService", spec={**PLAIN, "endpoint": {"maxQueue": 7}})
    with pytest.raises(Invalid):
        await world.reconcile_once()
    assert world.routes.find(KEY).max_queue == 7


async def test_a_deleted_service_leaves_no_route_and_no_demand(world):
    await world.runtime()
    service = await world.user("LLMService")
    await world.reconcile_once()
    world.demand.renew_lease(KEY, seconds=60)
    await world.cluster.delete(service)
    await world.reconcile_once()
    assert KEY not in world.routes and list(world.demand.rows()) == []
    assert await world.objects() == []


async def test_a_terminating_service_is_not_written(world):
    await world.runtime()
    service = await world.user(
        "LLMService", metadata={"name": "chat", "namespace": "ai", "finalizers": ["x.y/z"]}
    )
    await world.cluster.delete(service)
    world.cluster.written.clear()
    await world.reconcile_once()
    assert world.cluster.written == [] and KEY not in world.routes


@pytest.mark.parametrize("error", [Invalid("no such field"), Forbidden("quota exceeded")])
async def test_what_the_cluster_refuses_becomes_a_condition(world, error):
    await world.runtime()
    await world.user("LLMService")
    world.cluster.answers[("apply", "ScaledObject")] = error
    # Field case 61: its own words in the condition, no hot loop, and the rest is there.
    assert await world.reconcile_once() >= 30
    assert (await world.conditions())["Degraded"] == ("True", "ScaledObject")
    assert (await world.conditions())["AutoscalingReady"] == ("False", "ScaledObject")
    assert str(error) in world.routes.find(KEY).rejection.message
    assert await world.objects() == [name for name in ALL if "ScaledObject" not in name]
    world.cluster.answers.clear()
    await world.reconcile_once()
    await world.reconcile_once()
    assert (await world.conditions())["Degraded"] == ("False", "Inactive")
    assert await world.objects() == ALL


async def test_field_case_136_what_cannot_be_created_any_more_is_deleted(world):
    await world.runtime()
    service = await world.user("LLMService")
    await world.reconcile_once()
    world.demand.renew_lease(KEY, seconds=60)
    await world.cluster.delete(await world.cluster.get(kinds.DEPLOYMENT, *KEY))
    world.cluster.answers[("apply", "Deployment")] = Terminating("it is being terminated")
    await world.reconcile_once()
    assert KEY not in world.routes and list(world.demand.rows()) == []
    world.cluster.written.clear()
    await world.reconcile_once()
    assert world.cluster.written == [] and KEY not in world.routes
    # Whatever bears the name later, in a namespace made anew, is another service.
    await world.cluster.delete(service)
    world.cluster.answers.clear()
    await world.user("LLMService")
    await world.reconcile_once()
    assert KEY in world.routes and await world.objects() == ALL


async def test_field_case_143_nobody_is_answered_by_the_one_after(world):
    """Who waits for one that was recreated between two looks hears that it was deleted."""
    await world.runtime()
    service = await world.user("LLMService")
    await world.reconcile_once()
    world.demand.renew_lease(KEY, seconds=60)
    told = []
    world.routes.listen(lambda key: told.append(world.routes.find(key)))
    await world.cluster.delete(service)
    await world.user("LLMService")
    await world.reconcile_once()
    assert told[0] is None
    assert world.routes.find(KEY).uid != service["metadata"]["uid"]
    assert list(world.demand.rows()) == []


async def test_field_case_143_nor_where_the_one_after_cannot_be_looked_at(world):
    await world.runtime()
    service = await world.user("LLMService")
    await world.reconcile_once()
    await world.cluster.delete(service)
    await world.user("LLMService", spec=LOCKED)
    world.cluster.answers[("get", "Deployment")] = Unavailable()
    with pytest.raises(Unavailable):
        await world.reconcile_once()
    assert world.routes.find(KEY).authentication is not None


LOCKED = {**PLAIN, "endpoint": {"authentication": {"secretRef": {"name": "s", "key": "k"}}}}


async def secret(world, value):
    name = {"name": "s", "namespace": "ai"}
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": name, "stringData": {"k": value}}
    await world.cluster.apply(made, manager="user")


async def test_field_case_145_a_key_that_is_not_there_is_a_condition(world):
    await world.runtime()
    await world.user("LLMService", spec=LOCKED)
    assert await world.reconcile_once() == 15
    assert (await world.service())["status"]["phase"] == "Degraded"
    found = await world.conditions()
    assert found["Degraded"] == ("True", "APIKeyUnavailable")
    assert found["Ready"] == ("False", "APIKeyUnavailable")
    # No rejection: what is there runs on, and who asks hears of the key.
    assert world.routes.find(KEY).rejection is None and await world.objects() == ALL
    assert world.routes.find(KEY).delay.reason == "APIKeyUnavailable"
    await world.pod_ready()
    await world.reconcile_once()
    assert (await world.conditions())["Degraded"] == ("True", "APIKeyUnavailable")
    await secret(world, " ")
    world.now += 15
    assert await world.reconcile_once() == 15
    assert (await world.conditions())["Degraded"] == ("True", "APIKeyUnavailable")
    await secret(world, "x")
    world.now += 15
    await world.reconcile_once()
    assert (await world.conditions())["Ready"] == ("True", "Available")
    assert world.routes.find(KEY).delay is None
    events = [e["reason"] for e in (await world.cluster.list(kinds.EVENT)).items]
    assert events.count("APIKeyUnavailable") == 1 and "Recovered" in events


async def test_field_case_145_of_an_open_service_no_secret_is_read(world):
    await world.runtime()
    await world.user("LLMService")
    world.cluster.answers[("get", "Secret")] = AssertionError("nobody may")
    await world.reconcile_once()
    await world.reconcile_once()
    assert (await world.conditions())["Degraded"] == ("False", "Inactive")


async def test_a_runtime_that_cannot_be_read_is_told_in_plain_words(world):
    await world.user("InferenceRuntime", "stub", spec={"vendor": "abacus", "container": {}})
    await world.user("LLMService")
    await world.reconcile_once()
    assert world.routes.find(KEY).rejection.message == (
        "spec.runtime.name: InferenceRuntime stub cannot be read: spec.vendor: must be 'nvidia',"
        " 'ascend' or 'cpu', not 'abacus'"
    )
    assert world.caches.unreadable_runtime("serving.hearth.dev", "gone") is None
    await world.runtime()
    await world.reconcile_once()
    assert world.routes.find(KEY).rejection is None
    assert world.caches.unreadable_runtime("serving.hearth.dev", "stub") is None


async def test_a_runtime_of_the_other_group_is_named_as_such(world):
    await world.runtime(group="serving.noctaya.io")
    await world.user("LLMService")
    await world.reconcile_once()
    assert world.routes.find(KEY).rejection.message.startswith(
        "spec.runtime.name: InferenceRuntime stub is of serving.noctaya.io; this service is of"
        " serving.hearth.dev, and needs one of its own group"
    )


async def test_a_rejected_write_names_the_object_in_the_condition(world):
    await world.runtime()
    await world.user("LLMService")
    world.cluster.answers[("apply", "Service")] = Forbidden("exceeded quota: services")
    await world.reconcile_once()
    assert (await world.conditions())["Degraded"] == ("True", "Render")
    said = world.routes.find(KEY).rejection.message
    assert said == (
        "the cluster refused Service chat-backend: exceeded quota: services; raise that quota of"
        " the namespace, or ask for less; it is tried again each minute"
    )


async def test_a_cluster_error_is_retried_and_the_service_has_a_route(world):
    await world.runtime()
    await world.user("LLMService")
    world.cluster.answers[("get", "Deployment")] = Unavailable()
    with pytest.raises(Unavailable):
        await world.reconcile_once()
    assert world.routes.find(KEY).rejection is None
    world.cluster.answers.clear()
    await world.reconcile_once()
    assert await world.objects() == ALL


async def test_an_event_that_cannot_be_written_fails_nothing(world):
    await world.user("LLMService")
    world.cluster.answers[("create", "Event")] = Forbidden("no events for you")
    await world.reconcile_once()
    assert (await world.conditions())["Ready"] == ("False", "RuntimeResolution")


async def test_a_status_of_a_service_that_just_went_is_nobodys(world):
    await world.user("LLMService")
    world.cluster.answers[("status", "LLMService")] = NotFound("gone")
    await world.reconcile_once()
    assert not (await world.cluster.list(kinds.EVENT)).items


async def test_a_new_service_has_one_status_and_one_event(world):
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    await world.reconciler.reconcile(KEY)  # before what was written is heard of
    await world.reconcile_once()
    told = [(verb, kind) for verb, kind, _ in world.cluster.written]
    assert told.count(("status", "LLMService")) == told.count(("create", "Event")) == 1
    assert (await world.conditions())["AutoscalingReady"] == ("True", "ScaledObjectApplied")


async def test_what_was_said_counts_no_longer_once_the_service_has_changed(world):
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    service = await world.service()
    await world.cluster.patch_status({**service, "status": {}}, manager=names.STATUS_MANAGER)
    await world.reconcile_once()
    assert (await world.service())["status"]["phase"] == "ScaledToZero"


async def test_events_tell_what_changed_once(world):
    await world.runtime()
    await world.user("LLMService")
    for _ in range(3):
        await world.reconcile_once()
    events = (await world.cluster.list(kinds.EVENT, namespace="ai")).items
    reasons = [event["reason"] for event in events]
    assert len(reasons) == len(set(reasons)) and "ScaledToZero" in reasons
    assert {event["involvedObject"]["name"] for event in events} == {"chat"}


async def test_demand_without_pods_is_pending_until_the_lease_ends(world):
    await world.runtime()
    await world.user("LLMService")
    world.demand.renew_lease(KEY, seconds=60)
    requeue_after_s = await world.reconcile_once()
    assert (await world.service())["status"]["phase"] == "Pending"
    assert 0 < requeue_after_s <= 60


async def test_field_case_62_a_new_hearth_leaves_the_scale_alone(world):
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    before = (await world.cluster.get(kinds.DEPLOYMENT, *KEY))["metadata"]["uid"]
    await world.cluster.scale(KEY, replicas=3)
    await world.runtime(image="engine:2")
    restarted = ReconcilerFixture(world.cluster)
    await restarted.reconcile_once()
    deployment = await world.cluster.get(kinds.DEPLOYMENT, *KEY)
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "engine:2"
    assert deployment["spec"]["replicas"] == 3 and deployment["metadata"]["uid"] == before
    [owner] = [
        entry
        for entry in deployment["metadata"]["managedFields"]
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    ]
    assert owner["subresource"] == "scale"
    restarted.cluster.written.clear()
    await restarted.reconcile_once()
    assert restarted.cluster.written == []


async def test_field_case_74_each_trouble_shows_after_one_event(world):
    async def conditions():
        """One event, one pass."""
        await world.sync()
        assert world.asked == {KEY}
        world.asked.clear()
        await world.reconcile_once()
        return await world.conditions()

    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    await world.sync()
    world.asked.clear()
    await world.pod(ready=True)
    assert (await conditions())["Ready"] == ("True", "Available")
    await world.pod(waiting={"reason": "CrashLoopBackOff"}, restarts=2)
    found = await conditions()
    assert (found["Ready"][0], found["Degraded"]) == ("False", ("True", "CrashLoopBackOff"))
    assert world.routes.find(KEY).failure.reason == "CrashLoopBackOff"
    await world.pod(ready=True, restarts=3)
    found = await conditions()
    assert (found["Ready"][0], found["Degraded"][0]) == ("True", "False")
    scaled_object = await world.cluster.get(kinds.SCALED_OBJECT, *KEY)
    ready = {"type": "Ready", "status": "False", "reason": "TriggerError", "message": "m"}
    await world.cluster.patch_status(
        scaled_object | {"status": {"conditions": [ready]}}, manager="keda"
    )
    assert (await conditions())["AutoscalingReady"] == ("False", "TriggerError")


FINALIZED = {"finalizers": ["finalizer.keda.sh"]}


async def finalized(world):
    """KEDA's finalizer is on the ScaledObject, and KEDA is gone."""
    await world.runtime()
    service = await world.user("LLMService")
    await world.reconcile_once()
    scaled_object = await world.cluster.get(kinds.SCALED_OBJECT, *KEY)
    metadata = scaled_object["metadata"] | FINALIZED
    return service, await world.cluster.update(scaled_object | {"metadata": metadata})


async def test_field_case_60_a_stuck_scaled_object_holds_up_no_deletion(world):
    service, _ = await finalized(world)
    assert "finalizers" not in (await world.service())["metadata"]
    await world.cluster.delete(service)
    with pytest.raises(NotFound):
        await world.service()
    assert await world.objects() == ["ScaledObject/chat"]
    await world.reconcile_once()
    assert KEY not in world.routes


async def test_field_case_60_a_stuck_scaled_object_is_named(world):
    _, scaled_object = await finalized(world)
    await world.cluster.delete(scaled_object)
    world.cluster.written.clear()
    await world.reconcile_once()
    [said] = [
        one
        for one in (await world.service())["status"]["conditions"]
        if one["type"] == "AutoscalingReady"
    ]
    assert (said["status"], said["reason"]) == ("False", "ScaledObjectDeleting")
    assert "finalizer.keda.sh" in said["message"]
    assert not any(kind == "ScaledObject" for _, kind, _ in world.cluster.written)
    going = await world.cluster.get(kinds.SCALED_OBJECT, *KEY)
    metadata = {k: v for k, v in going["metadata"].items() if k != "finalizers"}
    await world.cluster.update(going | {"metadata": metadata})
    await world.reconcile_once()
    await world.reconcile_once()
    assert (await world.conditions())["AutoscalingReady"] == ("True", "ScaledObjectApplied")


async def test_a_broken_rule_keeps_the_runtime_in_the_status(world):
    await world.runtime()
    source = {"source": {"uri": "hf://org/m"}}
    scaling = {"min": 2, "max": 1}
    await world.user(
        "LLMService", spec={"model": source, "runtime": {"name": "stub"}, "scaling": scaling}
    )
    await world.reconcile_once()
    assert world.routes.find(KEY).rejection.message == (
        "spec.scaling.min: must not be more than max (1 by default): min is 2, max is 1"
    )
    assert (await world.service())["status"]["resolvedRuntime"] == "stub"
    assert (await world.conditions())["Degraded"] == ("True", "ScaledObject")
    assert await world.objects() == []


@pytest.mark.reference("text.passive runtime")
async def test_a_runtime_that_breaks_a_rule_rejects_its_services_until_it_is_mended(world):
    container = {"image": "engine:1"}
    await world.user("InferenceRuntime", "stub", spec={"vendor": "nvidia", "container": container})
    await world.user("LLMService")
    await world.reconcile_once()
    rejection = world.routes.find(KEY).rejection
    assert rejection.reason == "Render"
    assert rejection.message.startswith("InferenceRuntime stub: spec.accelerator: ")
    await world.runtime()
    await world.reconcile_once()
    assert world.routes.find(KEY).rejection is None and await world.objects() == ALL
