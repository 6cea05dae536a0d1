"""KEDA asks over mutual TLS: the real one is let in, with renewed certificates too; nobody else."""

import base64
import ssl

import anyio
import pytest
from grpclib.client import Channel
from grpclib.config import Configuration
from grpclib.exceptions import GRPCError, StreamTerminatedError

from hearth import names, trigger
from hearth.api.meta import ServiceKey
from hearth.externalscaler import externalscaler_pb2 as pb
from hearth.externalscaler.externalscaler_grpc import ExternalScalerStub
from tests import hanging
from tests.keda.pki import Pki
from tests.kubernetes import world as worlds
from tests.kubernetes.release import HOME, NAME, service, stub

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("keda")]

REFUSED = (GRPCError, StreamTerminatedError, OSError)
PORT = 9443


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


async def test_keda_is_let_in_and_nobody_else(hearth, world, namespace, pki):
    one, two = ServiceKey(namespace, "one"), ServiceKey(namespace, "two")
    await world.apply(stub("secure"))
    for key in (one, two):
        await world.apply(*_secrets(key, pki, "ca"), *_secured(key))
    for key in (one, two):
        await hearth.settled(key)
    assert await hearth.answer(one) == "one two three"
    assert await hearth.answer(two) == "one two three"
    deployment = await hearth.asleep(one)
    assert not worlds.scaled_by_hearth(deployment)  # it was KEDA that woke it

    # With KEDA's own means the door opens; each that is wrong is refused.
    mine = pki.client(of="one-ca-ca")
    assert await _asks(one, pki.dialler(mine, trusts="server-ca"))
    with pytest.raises(REFUSED):
        await _asks(one, pki.dialler(None, trusts="server-ca"))
    with pytest.raises(REFUSED):
        await _asks(one, pki.dialler(pki.client(of="two-ca-ca"), trusts="server-ca"))
    with pytest.raises(REFUSED):
        await _asks(one, pki.dialler(pki.client(of="stranger-ca"), trusts="server-ca"))
    with pytest.raises(REFUSED):  # let in as one, it asks about two
        await _asks(two, pki.dialler(mine, trusts="server-ca"), host=names.scaler_host(one))
    nameless = pki.dialler(mine, trusts="server-ca")
    nameless.check_hostname = False
    with pytest.raises(REFUSED):
        await _asks(one, nameless, host=(await hearth.leader())["status"]["podIP"])
    with pytest.raises(REFUSED):  # nor in plaintext
        await _asks(one, None, host=f"{names.release_scaler(NAME)}.{HOME}.svc", port=9090)


async def test_renewed_certificates_need_no_restart(hearth, world, namespace, pki):
    one = ServiceKey(namespace, "one")
    before = await hearth.leader()
    await hearth.asleep(one)
    await world.apply(*_secrets(one, pki, "new"))
    with hanging.guard(90):
        while True:  # secrets are read anew from time to time, and nobody is told
            try:
                client = pki.client(of="one-ca-new")
                assert await _asks(one, pki.dialler(client, trusts="server-ca"))
                break
            except REFUSED:
                await anyio.sleep(1)
    with pytest.raises(REFUSED):
        await _asks(one, pki.dialler(pki.client(of="one-ca-ca"), trusts="server-ca"))
    assert await hearth.answer(one) == "one two three"
    await hearth.asleep(one)  # KEDA is back, with the new ones
    after = await hearth.leader()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


def _secrets(key, pki, issue):
    """Both sides of one service, its clients' authority being of this issue."""
    clients = f"{key.name}-ca-{issue}"
    server = pki.secret(pki.server(names.scaler_host(key)), clients=clients)
    client = pki.client(of=clients)
    keda = {
        "ca.crt": pki.authority("server-ca").cert.read_bytes(),
        "tls.crt": client.cert.read_bytes(),
        "tls.key": client.key.read_bytes(),
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"{key.name}-{side}", "namespace": key.namespace},
            "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
        }
        for side, data in (("server", server), ("keda", keda))
    ]


def _secured(key):
    said = {"caCert": "ca.crt", "tlsClientCert": "tls.crt", "tlsClientKey": "tls.key"}
    model = service(key.name, key.namespace, runtime="secure")
    model["spec"]["scaling"]["externalScaler"] = {
        "tls": {
            "serverSecretName": f"{key.name}-server",
            "authenticationRef": {"name": f"{key.name}-keda"},
        }
    }
    return [
        {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "TriggerAuthentication",
            "metadata": {"name": f"{key.name}-keda", "namespace": key.namespace},
            "spec": {
                "secretTargetRef": [
                    {"parameter": parameter, "name": f"{key.name}-keda", "key": entry}
                    for parameter, entry in said.items()
                ]
            },
        },
        model,
    ]


async def _asks(key, context: ssl.SSLContext | None, *, host: str = "", port: int = PORT) -> bool:
    """Whether IsActive was answered, from a name of the cluster's DNS or an address."""
    async with Channel(
        host or names.scaler_host(key), port, ssl=context, config=Configuration()
    ) as channel:
        said = trigger.Trigger(target=1, uid="", server_secret=f"{key.name}-server")
        reference = pb.ScaledObjectRef(
            name=key.name,
            namespace=key.namespace,
            scalerMetadata=trigger.render(said, scaler_address=f"{host}:{port}"),
        )
        await ExternalScalerStub(channel).IsActive(reference, timeout=hanging.limit_s(5))
        return True
