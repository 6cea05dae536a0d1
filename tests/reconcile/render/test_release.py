"""What the installation decides."""

from hearth.reconcile.render.release import Release


def test_addresses_are_those_of_the_release():
    release = Release(name="rel", namespace="ops", cluster_domain="example.org", scaler_port=1)
    assert release.gateway_host == "rel-gateway.ops.svc.example.org"
    assert release.scaler_host == "rel-scaler.ops.svc.example.org"
    assert release.scaler_address == "rel-scaler.ops.svc:1"


def test_a_scaler_may_be_anywhere():
    assert Release(scaler="127.0.0.1:9090").scaler_address == "127.0.0.1:9090"
