"""What of another project's controller is left over, and how long it is looked for."""

import pytest

from hearth import names
from hearth.cluster import kinds
from hearth.reconcile.apply import leftovers, ownership
from hearth.reconcile.apply.leftovers import Leftovers
from tests.reconcile.builders import UID, find, render, service

HASHED = {names.HASH_ANNOTATION: "1"}
KEPT = {**HASHED, names.LEFTOVERS_ANNOTATION: "true"}


def one(kind="Service", name="chat", uid=UID, annotations=None):
    owner = {"kind": "LLMService", "name": "chat", "uid": uid, "controller": True}
    metadata = {"name": name, "namespace": "ai", "ownerReferences": [owner]}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


@pytest.mark.parametrize(
    ("observed", "sought"),
    [
        ([], False),
        ([one()], True),  # another controller's
        ([one(annotations={})], True),
        ([one(annotations=HASHED)], False),
        ([one(annotations=KEPT)], True),  # taken over, and not done
        ([one(uid="of another")], False),
        ([one("Deployment")], False),
        ([one(name="chat-backend"), one(annotations=HASHED)], False),
    ],
)
def test_leftovers_are_looked_for_from_the_takeover_to_the_last(observed, sought):
    assert leftovers.sought(service(), observed) is sought


@pytest.mark.parametrize(
    ("found", "left"),
    [
        (one("Deployment", "chat-gateway"), True),
        (one("Service", "chat-scaler", annotations=HASHED), False),  # Hearth's own, for TLS
        (one("Deployment", "chat-gateway", uid="of a service called chat-gateway"), False),
    ],
)
def test_what_is_left_over(found, left):
    assert ownership.of_former_controller(service(), found) is left


def test_claims_and_jobs_are_never_candidates():
    sought = [kind for kind, _ in leftovers.candidates(service().key)]
    assert not {kinds.PVC, kinds.JOB, kinds.POD, kinds.SCALED_OBJECT} & set(sought)


def test_the_mark_is_on_the_address_and_nowhere_else():
    found = render()
    marked = leftovers.marked(found.manifests, service().key)
    changed = [m["metadata"]["name"] for m in marked if m not in found.manifests]
    assert changed == ["chat"]
    assert [m["metadata"]["name"] for m in marked if leftovers.is_marked(m)] == ["chat"]
    assert not leftovers.is_marked(find(found, "Service", "chat"))


def test_a_warning_says_what_to_delete_and_how():
    key = service().key
    assert leftovers.warnings(key, Leftovers(unseen=("secret/x",))) == ()
    found = (one("Deployment", "chat-gateway"), one("Secret", "chat-demand-auth"))
    [said] = leftovers.warnings(
        key, Leftovers(found=found, unseen=("poddisruptionbudget/chat-gateway",))
    )
    assert (
        "kubectl -n ai delete --ignore-not-found deployment/chat-gateway secret/chat-demand-auth"
        " poddisruptionbudget/chat-gateway"
    ) in said
    assert (
        "Deployment chat-gateway, Secret chat-demand-auth" in said and "migration.cleanup" in said
    )
