"""A rejection on its way to a condition."""

from hearth import routes
from hearth.reconcile.spec import spec_errors


def test_it_carries_reason_and_message():
    error = spec_errors.SpecError(spec_errors.RENDER, "spec.x: no")
    assert error.rejection == routes.SpecRejection(reason="Render", message="spec.x: no")
    assert str(error) == "spec.x: no"
