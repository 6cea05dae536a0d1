"""A Secret's data: what can be used, and what is said of the rest."""

import os
import ssl

import pytest

from hearth.keda.tls import certificate
from hearth.keda.tls.certificate import BadSecret, Certificate
from tests.keda.pki import Pki

HOST = "chat-scaler.ai.svc"


def test_a_good_secret(pki: Pki):
    server = pki.issue("server-ca", "serverAuth", f"DNS:{HOST},DNS:*.x.svc,IP:127.0.0.1")
    got = certificate.read(pki.secret(server))
    assert got.names == (HOST, "*.x.svc")
    assert 1.9 < (got.not_after_s - got.not_before_s) / 86400 < 2.1
    assert got.roots == {ssl.PEM_cert_to_DER_cert(pki.authority("chat-ca").cert.read_text())}
    assert got.roots == certificate.roots(pki.secret(server))


def test_where_memory_cannot_be_a_file(pki: Pki, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "memfd_create")
    assert certificate.read(pki.secret()).names == (HOST,)


def test_a_bundle_of_authorities_may_have_comments_in_any_script(pki: Pki):
    both = b"# \xc3\xbcber\r\n".join(
        pki.authority(name).cert.read_bytes().replace(b"\n", b"\r\n") for name in ("a", "b")
    )
    data = {**pki.secret(), "ca.crt": both}
    assert len(certificate.read(data).roots) == len(certificate.roots(data)) == 2


def test_the_certificate_may_come_with_its_issuers(pki: Pki):
    data = pki.secret()
    data["tls.crt"] += pki.authority("server-ca").cert.read_bytes()
    assert certificate.read(data).names == (HOST,)


BROKEN_PEM = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
NOT_BASE64 = b"-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n"


@pytest.mark.reference("noctaya:spec.scaling.externalScaler.tls.serverSecretName")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tls.crt": b"", "tls.key": b"", "ca.crt": b""}, "has no tls.crt and no tls.key and no"),
        ({"tls.key": b" \n"}, "has no tls.key"),
        ({"ca.crt": b"x"}, "ca.crt holds no PEM certificate"),
        ({"tls.crt": b"\xff"}, "tls.crt holds no PEM certificate"),
        ({"ca.crt": BROKEN_PEM}, "ca.crt cannot be read: "),
        ({"ca.crt": NOT_BASE64}, "ca.crt cannot be read: "),
        ({"tls.crt": BROKEN_PEM}, "tls.crt cannot be read: "),
        ({"tls.key": b"x"}, "tls.key cannot be used (PEM lib); it must be a PEM key without"),
    ],
)
def test_what_is_wrong_is_named(pki: Pki, change: dict[str, bytes], message: str):
    with pytest.raises(BadSecret) as caught:
        certificate.read({**pki.secret(), **change})
    assert str(caught.value).startswith(message)


def test_a_key_of_another_certificate(pki: Pki):
    other = pki.server("other-scaler.ai.svc")
    with pytest.raises(BadSecret, match=r"^tls.key is not the key of tls.crt$"):
        certificate.read({**pki.secret(), "tls.key": other.key.read_bytes()})


def test_a_key_under_a_passphrase_asks_nobody(pki: Pki):
    with pytest.raises(BadSecret, match="must be a PEM key without a passphrase"):
        certificate.read({**pki.secret(), "tls.key": pki.encrypted(pki.server())})


def test_a_certificate_for_clients_is_none_for_servers(pki: Pki):
    with pytest.raises(BadSecret, match=r"^tls.crt is not for servers \(usage serverAuth\)$"):
        certificate.read(pki.secret(pki.client(of="server-ca")))


def test_what_openssl_does_not_understand_is_told_in_its_words(pki: Pki):
    odd = pki.issue("server-ca", "serverAuth", f"DNS:{HOST}", "1.2.3.4=critical,DER:0500")
    with pytest.raises(BadSecret, match=r"^tls.crt cannot be used: .*unhandled critical extension"):
        certificate.read(pki.secret(odd))


@pytest.mark.parametrize("text", [b"", b"x", NOT_BASE64])
def test_who_is_trusted_is_nobody_where_it_is_unreadable(text: bytes):
    assert certificate.roots({"ca.crt": text}) == frozenset()


START, END = 1_767_225_600.0, 1_767_312_000.0


@pytest.mark.reference("noctaya:text.certificate")
@pytest.mark.parametrize(
    ("names", "now_s", "expected"),
    [
        ((HOST,), START, None),
        ((HOST,), END, None),
        (("CHAT-scaler.ai.SVC",), START, None),
        (("other.ai.svc", "*.ai.svc"), START, None),
        ((HOST,), START - 1, "tls.crt is not valid before 2026-01-01T00:00:00Z"),
        ((HOST,), END + 1, "tls.crt expired on 2026-01-02T00:00:00Z; renew it"),
        (
            ("a", "*.svc"),
            START,
            f"tls.crt is valid only for a, *.svc, not for {HOST}, which KEDA dials; add it to the"
            " certificate's DNS names",
        ),
        (
            (),
            START,
            f"tls.crt is valid for no name, not for {HOST}, which KEDA dials; add it to the"
            " certificate's DNS names",
        ),
    ],
)
def test_what_a_client_would_refuse(names: tuple[str, ...], now_s: float, expected: str | None):
    made = Certificate(
        context=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        roots=frozenset(),
        names=names,
        not_before_s=START,
        not_after_s=END,
    )
    assert certificate.problem(made, server_name=HOST, now_s=now_s) == expected
