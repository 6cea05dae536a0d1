"""Whose name we come in, and what happens when it is refused."""

import json
import shutil
import ssl
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from hearth.cluster import kinds
from hearth.cluster.interface import Unavailable
from hearth.cluster.kube import credentials
from hearth.cluster.kube.credentials import Kubeconfig, ServiceAccount, Unconfigured
from tests.cluster import scripted
from tests.cluster.scripted import refuse, reply, watch

PODS = "/api/v1/pods"
EMPTY = reply(body={"metadata": {"resourceVersion": "1"}, "items": []})


@pytest.fixture
def account(tmp_path, certificate, clock):
    """The pod's own account; its host is the scripted server's."""
    (tmp_path / "token").write_text("first\n")
    shutil.copy(certificate("a").certificate, tmp_path / "ca.crt")

    def make(url="https://10.0.0.1:443"):
        known = ServiceAccount(
            token_file=str(tmp_path / "token"),
            ca_file=str(tmp_path / "ca.crt"),
            environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"},
            clock=clock,
        )
        known.configuration.host = url
        return known

    return make


def tokens(server):
    return [seen.headers["authorization"] for seen in server.seen]


class TestServiceAccount:
    async def test_the_token_is_read_again_after_a_minute(
        self, account, connect, server, tmp_path, clock
    ):
        cluster = await connect(account(server.url))
        server.on("GET", PODS, always=EMPTY)
        for wait_s, token in ((0, "second\n"), (59, "third"), (2, "fourth\r\n"), (61, "fifth")):
            clock.now += wait_s
            await cluster.list(kinds.POD)
            (tmp_path / "token").write_text(token)
        assert tokens(server) == ["Bearer first", "Bearer first", "Bearer third", "Bearer fourth"]

    @pytest.mark.parametrize("content", [None, "", "two words", "\xff\xfe"])
    async def test_last_token_is_kept_while_its_file_is_bad(
        self, account, connect, server, tmp_path, clock, content
    ):
        cluster = await connect(account(server.url))
        server.on("GET", PODS, always=EMPTY)
        path = tmp_path / "token"
        path.unlink() if content is None else path.write_text(content, "latin-1")
        clock.now += 61
        await cluster.list(kinds.POD)
        path.write_text("second")
        clock.now += 61
        await cluster.list(kinds.POD)
        assert tokens(server) == ["Bearer first", "Bearer second"]

    async def test_a_401_reads_the_token_at_once_and_retries_once(
        self, account, connect, server, tmp_path, pauses
    ):
        cluster = await connect(account(server.url))
        (tmp_path / "token").write_text("second")
        server.on("GET", PODS, refuse(401, "Unauthorized"), EMPTY)
        await cluster.list(kinds.POD)
        assert tokens(server) == ["Bearer first", "Bearer second"]
        assert pauses == []

    async def test_a_second_401_is_raised(self, account, connect, server):
        cluster = await connect(account(server.url))
        server.on("GET", PODS, always=refuse(401, "Unauthorized", "Unauthorized"))
        with pytest.raises(Unavailable, match="the cluster refuses our credentials: Unauth"):
            await cluster.list(kinds.POD)
        assert len(server.seen) == 2
        with pytest.raises(Unavailable, match="the cluster refuses our credentials: Unauth"):
            await anext(cluster.watch(kinds.POD, since="1"))
        assert len(server.seen) == 4

    async def test_a_watch_with_401_begins_with_the_new_token(
        self, account, connect, server, tmp_path
    ):
        cluster = await connect(account(server.url))
        (tmp_path / "token").write_text("second")
        added = ("ADDED", {"metadata": {"name": "p"}})
        server.on("GET", PODS, refuse(401, "Unauthorized"), watch(added))
        assert [change.type async for change in cluster.watch(kinds.POD, since="1")] == ["ADDED"]
        assert tokens(server) == ["Bearer first", "Bearer second"]

    @pytest.mark.parametrize("lacking", ["token", "ca.crt"])
    def test_a_missing_token_file_is_named(self, account, tmp_path, lacking):
        (tmp_path / lacking).unlink()
        with pytest.raises(Unconfigured, match=r"service account cannot be used: .* not exist"):
            account()

    async def test_a_ca_file_without_certificate(self, account, connect, tmp_path):
        (tmp_path / "ca.crt").write_text("none")
        with pytest.raises(Unconfigured, match="certificates cannot be used"):
            await connect(account())

    async def test_a_rotated_ca_is_read_without_a_restart(
        self, account, connect, certificate, tmp_path
    ):
        async with scripted.serve(tls=certificate("b").server_context()) as server:
            cluster = await connect(account(server.url), call_s=5)
            server.on("GET", PODS, always=EMPTY)
            with pytest.raises(Unavailable, match="certificate verify failed"):
                await anext(cluster.watch(kinds.POD, since="1"))
            for spoilt in ("none", None):  # half written, or not there for a moment
                path = tmp_path / "ca.crt"
                path.unlink() if spoilt is None else path.write_text(spoilt)
                with pytest.raises(Unavailable, match="certificate verify failed"):
                    await anext(cluster.watch(kinds.POD, since="1"))
            shutil.copy(certificate("b").certificate, tmp_path / "ca.crt")
            await cluster.list(kinds.POD)
            await cluster.__aexit__()


def plugin(tmp_path, *answers):
    """An exec plugin that gives these, one a run, and fails after the last; and its command."""
    for number, answer in enumerate(answers):
        status = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
        (tmp_path / f"answer-{number}").write_text(json.dumps({**status, "status": answer}))
    (tmp_path / "plugin").write_text(
        f"#!/bin/sh\ncd {tmp_path}\nn=$(ls | grep -c ran-)\ntouch ran-$n\nexec cat answer-$n\n"
    )
    (tmp_path / "plugin").chmod(0o755)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(tmp_path / "plugin"),
        }
    }


class TestKubeconfig:
    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("clusters: [", "cannot be used"),
            ("", "cannot be used"),
            ("current-context: x\ncontexts: []\nclusters: []\nusers: []", "cannot be used: .*x"),
            (
                "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n"
                "clusters: [{name: c, cluster: {server: 'https://h'}}]\nusers: []",
                "cannot be used",
            ),
            (
                "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
                "clusters: [{name: c, cluster: {server: 'https://h'}}]\n"
                "users: [{name: u, user: {}}]",
                "no credentials",
            ),
            (
                "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
                "clusters: [{name: c, cluster: {server: 'https://h', certificate-authority: n}}]\n"
                "users: [{name: u, user: {token: t}}]",
                "does not exist",
            ),
        ],
    )
    async def test_an_unusable_kubeconfig_names_its_error(self, tmp_path, text, why):
        path = tmp_path / "config"
        path.write_text(text)
        with pytest.raises(Unconfigured, match=f"(?is){why}"):
            await credentials.load(kubeconfig=str(path))

    async def test_a_missing_kubeconfig(self, tmp_path):
        with pytest.raises(Unconfigured, match=r"there is no kubeconfig at .*nowhere"):
            await credentials.load(environ={"KUBECONFIG": str(tmp_path / "nowhere")})

    async def test_precedence_of_kubeconfig_variable_and_service_account(
        self, kubeconfig, tmp_path
    ):
        path = kubeconfig("http://h", token="t")
        pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
        nowhere = {"KUBECONFIG": str(tmp_path / "nowhere"), **pod}
        found = await credentials.load(kubeconfig=path, environ=nowhere)
        assert found.configuration.host == "http://h"
        found = await credentials.load(environ={"KUBECONFIG": path, **pod})
        assert found.configuration.host == "http://h"
        with pytest.raises(Unconfigured, match="the pod's service account"):
            await credentials.load(environ=pod)

    async def test_a_token_file_may_end_in_a_newline(self, kubeconfig, connect, server, tmp_path):
        (tmp_path / "token").write_text("filed\n")
        known = Kubeconfig(kubeconfig(server.url, tokenFile=str(tmp_path / "token")))
        await known.load()
        cluster = await connect(known)
        server.on("GET", PODS, EMPTY)
        await cluster.list(kinds.POD)
        assert tokens(server) == ["Bearer filed"]

    async def test_a_401_reads_the_kubeconfig_again(self, kubeconfig, connect, server):
        known = Kubeconfig(kubeconfig(server.url, token="old"))
        await known.load()
        cluster = await connect(known)
        kubeconfig(server.url, token="new")
        server.on("GET", PODS, refuse(401), EMPTY)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.run)
            await anyio.wait_all_tasks_blocked()
            await cluster.list(kinds.POD)
            tasks.cancel_scope.cancel()
        assert tokens(server) == ["Bearer old", "Bearer new"]

    async def test_without_the_renewal_task_a_401_is_raised_at_once(self, cluster, server):
        server.on("GET", PODS, refuse(401))
        with pytest.raises(Unavailable, match="refuses our credentials"):
            await cluster.list(kinds.POD)

    async def test_exec_plugin_runs_again_after_a_401(self, kubeconfig, connect, server, tmp_path):
        user = plugin(tmp_path, {"token": "one"}, {"token": "two"})
        known = Kubeconfig(kubeconfig(server.url, **user))
        await known.load()
        cluster = await connect(known)
        server.on("GET", PODS, refuse(401), always=EMPTY)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.run)
            await anyio.wait_all_tasks_blocked()
            for _ in range(3):
                await cluster.list(kinds.POD)
            tasks.cancel_scope.cancel()
        assert tokens(server) == ["Bearer one", *["Bearer two"] * 3]
        assert len(list(tmp_path.glob("ran-*"))) == 2

    async def test_exec_plugin_runs_again_before_its_token_expires(self, kubeconfig, tmp_path):
        past = (datetime.now(UTC) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        later = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        user = plugin(
            tmp_path,
            {"token": "one", "expirationTimestamp": past},
            {"token": "two", "expirationTimestamp": later},
        )
        known = Kubeconfig(kubeconfig("http://h", **user), rest_s=0.01)
        await known.load()
        renewed = known._renewed
        assert known.configuration.api_key["BearerToken"] == "Bearer one"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(known.run)
            await renewed.wait()
            tasks.cancel_scope.cancel()
        assert known.configuration.api_key["BearerToken"] == "Bearer two"

    async def test_last_token_is_kept_when_an_exec_plugin_fails(self, kubeconfig, tmp_path, caplog):
        known = Kubeconfig(kubeconfig("https://h", **plugin(tmp_path, {"token": "one"})))
        known.configuration.ssl_ca_cert = None
        await known.load()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(known.run)
            await anyio.wait_all_tasks_blocked()
            assert await known.renew()
            tasks.cancel_scope.cancel()
        assert known.configuration.api_key["BearerToken"] == "Bearer one"
        assert "kubeconfig was not read" in caplog.text

    async def test_an_exec_plugin_that_fails_at_first_is_an_error(self, kubeconfig, tmp_path):
        with pytest.raises(Unconfigured, match="exec plugin, the log says how that failed"):
            await credentials.load(kubeconfig=kubeconfig("https://h", **plugin(tmp_path)))

    async def test_an_exec_plugins_new_certificate_is_used(
        self, kubeconfig, connect, certificate, tmp_path
    ):
        def pair(name):
            made = certificate(name)
            return {
                "clientCertificateData": made.certificate.read_text(),
                "clientKeyData": made.key.read_text(),
            }

        tls = certificate("server").server_context()
        tls.verify_mode = ssl.CERT_REQUIRED
        for name in ("a", "b"):
            tls.load_verify_locations(certificate(name).certificate)
        async with scripted.serve(tls=tls) as server:
            path = kubeconfig(
                server.url,
                ca_file=str(certificate("server").certificate),
                **plugin(tmp_path, pair("a"), pair("b")),
            )
            known = Kubeconfig(path)
            await known.load()
            cluster = await connect(known)
            server.on("GET", PODS, refuse(401), EMPTY)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cluster.run)
                await anyio.wait_all_tasks_blocked()
                await cluster.list(kinds.POD)
                tasks.cancel_scope.cancel()
            assert [seen.peer for seen in server.seen] == ["a", "b"]
            await cluster.__aexit__()
