"""What a certificate says, and which ones no server may show."""

import subprocess
import sys

import pytest

from hearth.keda.tls import x509
from hearth.keda.tls.x509 import NotForServers
from tests.keda.pki import Pki


def read(pki: Pki, name: str, *more: str, usage: str = "serverAuth") -> x509.Details:
    return x509.read(pki.issue("server-ca", usage, name, *more).cert.read_text())


def test_its_names_and_dates(pki: Pki):
    got = read(pki, "DNS:a.svc,DNS:*.x.svc,IP:127.0.0.1,email:x@y")
    assert got.names == ("a.svc", "*.x.svc")
    assert got.not_after_s - got.not_before_s == 2 * 86400


def test_one_without_extensions_has_no_names_and_any_usage(pki: Pki):
    assert x509.read(pki.authority("bare").cert.read_text()).names == ()


@pytest.mark.parametrize(
    ("name", "usage"),
    [("DNS:b.svc", "clientAuth"), ("DNS:b.svc", "codeSigning,emailProtection")],
)
def test_an_extended_usage_must_be_that_of_servers(pki: Pki, name: str, usage: str):
    with pytest.raises(NotForServers):
        read(pki, name, usage=usage)
    assert read(pki, name, usage=f"{usage},serverAuth").names == ("b.svc",)


@pytest.mark.parametrize(
    ("usage", "fits"),
    [
        ("digitalSignature", True),
        ("keyEncipherment", True),
        ("critical,keyAgreement", True),
        ("critical,cRLSign,keyCertSign", False),
    ],
)
def test_a_usage_must_be_one_for_handshakes(pki: Pki, usage: str, fits: bool):
    name = f"DNS:{usage.lower().replace(',', '-')}.svc"
    if fits:
        assert read(pki, name, f"keyUsage={usage}").names
    else:
        with pytest.raises(NotForServers):
            read(pki, name, f"keyUsage={usage}")


def test_what_is_critical_must_be_known(pki: Pki):
    assert read(pki, "DNS:c.svc", "1.2.3.4=DER:0500").names
    with pytest.raises(ValueError, match=r"unhandled critical extension 1\.2\.3\.4"):
        read(pki, "DNS:d.svc", "1.2.3.4=critical,DER:0500")
    with pytest.raises(ValueError, match="unhandled critical extension"):
        read(pki, "DNS:e.svc", "tlsfeature=critical,status_request")
    assert read(pki, "DNS:f.svc", "nameConstraints=critical,permitted;DNS:x").names


def test_a_text_that_is_none():
    with pytest.raises(ValueError):
        x509.read("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


def test_whoever_has_no_tls_does_not_load_the_library():
    words = "import hearth.app, sys; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words]).returncode == 0
