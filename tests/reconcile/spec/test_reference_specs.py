"""What comes of a spec that a reference's own CRDs let in."""

import pytest

from hearth.api import groups
from hearth.api.meta import Manifest
from hearth.api.runtime import InferenceRuntime
from hearth.reconcile.render import desired
from hearth.reconcile.render.release import Release
from hearth.reconcile.spec import parse, runtime_selection
from hearth.reconcile.spec.spec_errors import SpecError
from hearth.routes import SpecRejection
from tests.api import reference_specs, samples
from tests.api.reference_specs import SPECS


def outcome(manifest: Manifest, group: str) -> SpecRejection | tuple[str, ...]:
    """The rejection, or the warnings of a service that is served."""
    parsed = parse.parse(manifest)
    if parsed.rejection is not None:
        return parsed.rejection
    runtime = InferenceRuntime.model_validate(samples.runtime(group))
    try:
        picked = runtime_selection.pick(parsed.service, [runtime])
        return desired.render(parsed.service, picked, release=Release()).warnings
    except SpecError as error:
        return error.rejection


@pytest.mark.parametrize(
    ("group", "spec"),
    [(group, spec) for spec in SPECS for group in spec.groups],
    ids=str,
)
def test_what_comes_of_it(group, spec):
    got = outcome(samples.service(group, **spec.changes), group)
    if spec.reason:
        assert isinstance(got, SpecRejection)
        assert got.reason == spec.reason
        assert spec.words in got.message
    else:
        assert not isinstance(got, SpecRejection)
        assert [spec.words in sentence for sentence in got] == [True] * bool(spec.words)


@pytest.mark.parametrize("group", groups.GROUPS)
@pytest.mark.parametrize("changes", reference_specs.RUNTIMES, ids=str)
def test_a_runtime_that_a_reference_lets_in_serves(group, changes):
    runtime = InferenceRuntime.model_validate(samples.runtime(group, **changes))
    assert parse.runtime_rejection(runtime) is None
    parsed = parse.parse(samples.service(group))
    picked = runtime_selection.pick(parsed.service, [runtime])
    assert desired.render(parsed.service, picked, release=Release()).manifests


@pytest.mark.parametrize(("field", "changes"), reference_specs.STORED, ids=str)
def test_what_is_stored_and_breaks_a_newer_rule_is_degraded_by_name(field, changes):
    manifest = samples.service(**changes)
    got = outcome({**manifest, "status": {"phase": "Ready"}}, "serving.hearth.dev")
    assert isinstance(got, SpecRejection) and got.message.startswith(f"{field}: ")


@pytest.mark.parametrize("name", reference_specs.STORED_NAMES)
def test_so_is_a_name(name):
    got = outcome(samples.service(name=name), "serving.hearth.dev")
    assert isinstance(got, SpecRejection) and got.message.startswith("metadata.name: ")
