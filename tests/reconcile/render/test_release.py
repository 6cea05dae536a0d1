"""What the installation decides."""

from hearth.reconcile.render.release import Site


def test_addresses_are_those_of_the_release():
    site = Site(release="rel", namespace="ops", cluster_domain="example.org", scaler_port=1)
    assert site.gateway_host == "rel-gateway.ops.svc.example.org"
    assert site.scaler_host == "rel-scaler.ops.svc.example.org"
    assert site.scaler_address == "rel-scaler.ops.svc:1"


def test_a_scaler_may_be_anywhere():
    assert Site(scaler="127.0.0.1:9090").scaler_address == "127.0.0.1:9090"
