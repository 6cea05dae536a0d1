"""CRDs come with the release, upgraded by it, and outlive it."""

from hearth.api import crd, groups

KEEP = {"helm.sh/resource-policy": "keep"}


def _definitions(documents):
    return [d for d in documents if d["kind"] == "CustomResourceDefinition"]


def _bare(definition):
    metadata = {k: v for k, v in definition["metadata"].items() if k != "annotations"}
    return {**definition, "metadata": metadata}


def _by_name(definitions):
    return {definition["metadata"]["name"]: definition for definition in definitions}


def test_field_case_88_helm_renders_what_the_program_prints(each_helm):
    for enabled, wanted in ((False, [groups.HEARTH]), (True, groups.GROUPS)):
        found = _definitions(each_helm.render(crds={"install": True}, noctaya={"enabled": enabled}))
        bare = _by_name(map(_bare, found))
        assert bare == _by_name(crd.documents(wanted))


def test_field_case_89_uninstalling_keeps_them(helm):
    found = _definitions(helm.render(crds={"install": True}, noctaya={"enabled": True}))
    assert [d["metadata"]["annotations"] for d in found] == [KEEP] * 4


def test_they_can_be_left_to_somebody_else(helm):
    assert not _definitions(helm.render(crds={"install": False}))
