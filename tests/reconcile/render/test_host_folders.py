"""Who has a node's folder that two services would have by name."""

import pytest

from hearth.api.llmservice import LLMService
from hearth.reconcile.render import desired, host_folders
from hearth.reconcile.render.host_folders import HostFolder
from hearth.reconcile.render.release import Release
from tests.reconcile.builders import find, merged, runtime, service_manifest

NOCTAYA, HEARTH = "serving.noctaya.io", "serving.hearth.dev"
BEFORE, FIRST, SECOND = "2025-12-31T23:59:59Z", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
SHARED, FORMER = "/var/lib/noctaya/cache/a-b-c", "/var/lib/hearth/cache/a-b-c"


def manifest(key="a-b/c", *, group=NOCTAYA, created=FIRST, strategy="HostPath", uri="hf://o/m"):
    namespace, name = key.split("/")
    spec = {"cache": {"strategy": strategy}, "model": {"source": {"uri": uri}}}
    return service_manifest(
        spec, name=name, group=group, namespace=namespace, creationTimestamp=created
    )


@pytest.mark.parametrize(
    ("of", "found"),
    [
        (manifest(), [SHARED]),
        (manifest("a/b-c"), [SHARED]),
        (manifest(group=HEARTH), [FORMER]),
        (manifest(strategy="None"), []),
        (manifest(uri="pvc://staged/m"), []),
        (merged(manifest(), {"spec": 7}), []),
    ],
)
def test_field_case_140_which_services_may_meet(of, found):
    assert list(host_folders.index_keys(of)) == found


def decide(of, *others, mounted=""):
    deployment = {"spec": {"template": {"spec": {"volumes": [{"hostPath": {"path": mounted}}]}}}}
    return host_folders.choose(LLMService.model_validate(of), [of, *others], deployment)


OTHER = manifest("a/b-c", created=SECOND)
APART = "/var/lib/hearth/cache/a/b-c"


@pytest.mark.parametrize(
    ("of", "others", "mounted", "apart"),
    [
        (manifest(), [], SHARED, False),
        (manifest(), [OTHER], SHARED, False),
        (OTHER, [manifest()], "", True),
        (OTHER, [manifest()], SHARED, True),  # an earlier Hearth's: two writers now
        (OTHER, [manifest(created=SECOND)], "", False),  # of one second: by name
        (manifest(created=SECOND), [OTHER], "", True),
        # The older one is gone: what was downloaded is there.
        (OTHER, [], APART, True),
        (OTHER, [], "", False),
    ],
)
def test_field_case_140_never_two_writers(of, others, mounted, apart):
    got = decide(of, *others, mounted=mounted)
    assert (got.apart, bool(got.warnings)) == (apart, bool(others))
    if others:
        [said] = got.warnings
        assert SHARED in said and ("/var/lib/hearth/cache/" in said) == apart


def test_a_service_of_the_first_group_has_its_own_folder():
    of = manifest(group=HEARTH)
    assert host_folders.choose(LLMService.model_validate(of), [], None) == HostFolder()


@pytest.mark.parametrize(
    ("others", "mounted", "found"),
    [
        ([], "", HostFolder()),  # a new one
        ([], "/var/lib/hearth/cache/a-b/c", HostFolder()),
        ([], FORMER, HostFolder(former=True)),  # filled by its reference's controller
        ([manifest("a/b-c", group=HEARTH, created=SECOND)], "", HostFolder()),
        ([manifest("a/b-c", group=HEARTH, created=SECOND)], FORMER, HostFolder(former=True)),
        ([manifest("a/b-c", group=HEARTH, created=BEFORE)], FORMER, HostFolder(apart=True)),
    ],
)  # fmt: skip
def test_the_folder_that_the_first_reference_filled_is_kept(others, mounted, found):
    got = decide(manifest(group=HEARTH), *others, mounted=mounted)
    assert (got.apart, got.former) == (found.apart, found.former)
    assert bool(got.warnings) == (bool(others) and mounted == FORMER)
    for said in got.warnings:
        assert FORMER in said and ("is /var/lib/hearth/cache/a-b/c," in said) == found.apart


def test_the_kept_folder_is_what_is_mounted():
    of = LLMService.model_validate(manifest(group=HEARTH))
    for folder, path in ((None, "/var/lib/hearth/cache/a-b/c"), (HostFolder(former=True), FORMER)):
        found = desired.render(of, runtime(), release=Release(), host_folder=folder)
        volumes = find(found, "Deployment")["spec"]["template"]["spec"]["volumes"]
        assert [v["hostPath"]["path"] for v in volumes if "hostPath" in v] == [path]


def test_field_case_140_the_folder_apart_is_what_is_mounted():
    of = LLMService.model_validate(OTHER)
    by = runtime(group=NOCTAYA)
    for folder, path in ((None, SHARED), (HostFolder(apart=True, warnings=("x",)), APART)):
        found = desired.render(of, by, release=Release(), host_folder=folder)
        volumes = find(found, "Deployment")["spec"]["template"]["spec"]["volumes"]
        assert [v["hostPath"]["path"] for v in volumes if "hostPath" in v] == [path]
        assert ("x" in found.warnings) == (folder is not None)
