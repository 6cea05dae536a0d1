"""What is written once, and what is told where the spec says something else."""

from typing import Any

import pytest

from hearth.api.meta import Manifest
from hearth.reconcile.apply import written_once
from tests.reconcile.builders import find, render, service

OCI = "oci://registry/repo@sha256:" + "0" * 64


def written(kind: str, spec: Manifest, **metadata: Any) -> Manifest:
    return find(render(service(spec, **metadata)), kind)


CLAIM = "spec.cache: PersistentVolumeClaim chat-cache was created with another"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"size": "50Gi"}, {"size": "60Gi"}, f"{CLAIM} size (50Gi; the spec says 60Gi), and"),
        ({}, {"storageClassName": "b"}, f"{CLAIM} StorageClass (none; the spec says b), and"),
        (
            {"storageClassName": "a"},
            {"storageClassName": "b"},
            f"{CLAIM} StorageClass (a; the spec says b), and",
        ),
        (
            {},
            {"strategy": "SharedPVC"},
            f"{CLAIM} access mode (ReadWriteOnce; the spec says ReadWriteMany), and",
        ),
        (
            {},
            {"strategy": "SharedPVC", "size": "1Gi"},
            f"{CLAIM} size (50Gi; the spec says 1Gi) and access mode (ReadWriteOnce;",
        ),
    ],
)
def test_field_case_84_a_changed_claim_is_told_with_both_values(before, after, told: str):
    claim = written("PersistentVolumeClaim", {"cache": before})
    got = written_once.rejection(written("PersistentVolumeClaim", {"cache": after}), claim)
    assert got.reason == "ClaimChanged"
    assert got.message.startswith(told)
    assert "delete the claim" in got.message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"size": "1Gi"}, {"size": "1024Mi"}),
        # The cluster has a default.
        ({"storageClassName": "a"}, {}),
    ],
)
def test_the_same_claim_in_other_words(before: Manifest, after: Manifest):
    claim = written("PersistentVolumeClaim", {"cache": before})
    assert written_once.rejection(written("PersistentVolumeClaim", {"cache": after}), claim) is None


def test_a_claim_without_anything():
    claim = written("PersistentVolumeClaim", {})
    bare = {**claim, "metadata": {"name": "chat-cache"}, "spec": {}}
    told = written_once.rejection(claim, bare).message
    assert told.startswith(f"{CLAIM} size (none; the spec says 50Gi) and access mode (none;")


@pytest.mark.reference("text.created once")
def test_a_changed_job_is_told_with_both_values():
    job = written("Job", {"cache": {"prewarm": True}})
    wanted = written("Job", {"model": {"source": {"uri": OCI}}, "cache": {"strategy": "SharedPVC"}})
    got = written_once.rejection(wanted, job)
    assert got.reason == "PrewarmChanged"
    assert got.message == (
        "spec.model.source, spec.cache: Job chat-prewarm was created to fetch hf://org/model"
        f" (NodeLocalPVC), and the spec now says {OCI} (SharedPVC); a Job is written once: delete"
        " Job chat-prewarm (of hearth local: start that again), and Hearth fetches what the spec"
        " says, or undo the change"
    )
    assert written_once.rejection(job, job) is None


def test_a_job_for_another_folder():
    job = written("Job", {"cache": {"prewarm": True, "strategy": "HostPath"}})
    moved = {**job, "metadata": {**job["metadata"], "annotations": {}}}
    annotations = {**job["metadata"]["annotations"], "serving.hearth.dev/spec-hash": "other"}
    other = {**job, "metadata": {**job["metadata"], "annotations": annotations}}
    assert (
        "hf://org/model (HostPath) in another folder" in written_once.rejection(other, job).message
    )
    assert "another model (no strategy)" in written_once.rejection(job, moved).message
