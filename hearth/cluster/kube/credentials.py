"""Find a way into the cluster, and keep its credentials fresh."""

import hashlib
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import anyio
import yaml
from kubernetes.aio import config as loaders
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import incluster_config

from hearth import tcp_keepalive
from hearth.cluster import interface
from hearth.cluster.kube import proxies

logger = logging.getLogger(__name__)

_REREAD_S = 60.0
_REST_S = 10.0
_RELOAD_S = 60.0
_BEARER = "BearerToken"
_KUBECONFIG_FIELDS = (
    "host", "api_key", "ssl_ca_cert", "cert_file", "key_file", "verify_ssl", "tls_server_name",
    "proxy",
)  # fmt: skip


class Unconfigured(interface.ClusterError):
    """No usable way to a cluster is configured; the message says what to do."""


class Credentials(Protocol):
    """Credentials for the cluster, as they are now."""

    configuration: Configuration

    async def renew(self) -> bool:
        """Read them again after a 401.  False: there is nothing to read again."""
        ...

    async def run(self) -> None:
        """Keep them fresh until cancelled."""
        ...


async def load(
    *, kubeconfig: str = "", context: str = "", environ: Mapping[str, str] = os.environ
) -> Credentials:
    """A kubeconfig that is named, else `KUBECONFIG`, else the pod's own account, else
    `~/.kube/config`.  Raises Unconfigured."""
    named = kubeconfig or environ.get("KUBECONFIG", "")
    if not named and environ.get(incluster_config.SERVICE_HOST_ENV_NAME):
        return ServiceAccount(environ=environ)
    credentials = Kubeconfig(named or str(Path.home() / ".kube" / "config"), context=context)
    await credentials.load()
    return credentials


def client(credentials: Credentials, *, connections: int, user_agent: str) -> ApiClient:
    """A pool of at most `connections` (0: any number).  Raises Unconfigured for a bad CA file."""
    configuration = credentials.configuration
    configuration.connection_pool_maxsize = connections
    # aiohttp would ask the environment anew for each request, in a thread, twice: for a proxy, of
    # whose exceptions it knows no ranges, and for a netrc, which would stand beside our own
    # Authorization and fail the request.
    configuration.client_session_kwargs = {"trust_env": False}
    try:
        made = ApiClient(configuration)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise Unconfigured(f"the cluster's certificates cannot be used: {error}") from error
    made.user_agent = user_agent
    rest: Any = made.rest_client
    rest._create_connector = lambda: aiohttp.TCPConnector(
        limit=connections, ssl=rest.ssl_context, socket_factory=_socket
    )
    if (through := proxy(configuration)) is not None:
        # Apart from the URL, which an error would show.
        rest.proxy, rest.proxy_headers = through.url, through.headers
        if configuration.host.startswith("http:"):  # nothing is tunnelled: the proxy reads it all
            made.default_headers.update(through.headers)
    return made


def proxy(
    configuration: Configuration, environ: Mapping[str, str] = os.environ
) -> proxies.Proxy | None:
    """The proxy for the API server: the kubeconfig's, else the environment's.

    Raises Unconfigured."""
    try:
        if configuration.proxy:
            return proxies.read(configuration.proxy, origin="proxy-url of the kubeconfig")
        return proxies.find(configuration.host, environ)
    except proxies.BadProxy as error:
        raise Unconfigured(str(error)) from error


def _socket(address: Any) -> socket.socket:
    """A watch that hears nothing must notice that the other end is gone."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    tcp_keepalive.enable(made, gone_after_s=tcp_keepalive.PEER_S)
    return made


def fingerprint(configuration: Configuration) -> str:
    """Changes when a connection made anew would present or trust other certificates."""
    digest = hashlib.sha256()
    for path in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file):
        digest.update(repr(path).encode())
        try:
            digest.update(Path(path).read_bytes() if path else b"")
        except OSError:
            digest.update(b"unreadable")
    return digest.hexdigest()


def _any_file(files: str) -> bool:
    return any(Path(file).expanduser().is_file() for file in files.split(os.pathsep) if file)


def _configuration() -> Configuration:
    configuration = Configuration()
    # Python 3.13 began to demand extensions that the CAs of widespread clusters lack.  Chain and
    # name are verified all the same, as every other client does.
    configuration.disable_strict_ssl_verification = True
    return configuration


class ServiceAccount:
    """The account of the pod we run in: a token in a file, which the kubelet rotates hourly.

    The file is read at most once a minute, before a request, and at once after a refusal.  A
    file that is missing for a moment leaves the last token in use.  Raises Unconfigured.
    """

    def __init__(
        self,
        *,
        token_file: str = incluster_config.SERVICE_TOKEN_FILENAME,
        ca_file: str = incluster_config.SERVICE_CERT_FILENAME,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._token_file = Path(token_file)
        self._clock = clock
        self._read_again_at = clock()
        self.configuration = _configuration()
        loader = incluster_config.InClusterConfigLoader(
            token_filename=token_file,
            cert_filename=ca_file,
            try_refresh_token=False,
            environ=environ,
        )
        try:
            loader.load_and_set(self.configuration)
        except (loaders.ConfigException, OSError, ValueError) as error:
            raise Unconfigured(f"the pod's service account cannot be used: {error}") from error
        self._read()
        hook: Any = lambda _: self._refresh()  # noqa: E731 - the library types it as None
        self.configuration.refresh_api_key_hook = hook

    async def renew(self) -> bool:
        self._read()
        return True

    async def run(self) -> None:
        await anyio.sleep_forever()

    def _refresh(self) -> None:
        if self._clock() >= self._read_again_at:
            self._read()

    def _read(self) -> None:
        self._read_again_at = self._clock() + _REREAD_S
        try:
            words = self._token_file.read_text().split()
        except (OSError, ValueError) as error:
            logger.warning("service account token was not read", extra={"error": str(error)})
            return
        if len(words) == 1:  # the file may end in a newline, which no header may
            self.configuration.api_key[_BEARER] = f"Bearer {words[0]}"


class Kubeconfig:
    """A context of a kubeconfig file: token, client certificate or exec plugin.

    The whole file is read again (and a plugin run again) when the server refuses what it gave,
    and when four fifths of a plugin's credential are over, by `run`, `rest_s` apart at least.
    """

    def __init__(
        self,
        files: str,
        *,
        context: str = "",
        rest_s: float = _REST_S,
    ) -> None:
        self._files = files
        self._context = context
        self._least_rest_s = rest_s
        self._expires: datetime | None = None
        self._running = False
        self._refused = anyio.Event()
        self._renewed = anyio.Event()
        self.configuration = _configuration()

    async def load(self) -> None:
        """Read the file now.  Raises Unconfigured, and then changes nothing."""
        if not _any_file(self._files):
            raise Unconfigured(
                f"there is no kubeconfig at {self._files}; name one with KUBECONFIG, or run"
                " inside a cluster"
            )
        fresh = _configuration()
        try:
            loader = await loaders.load_kube_config(
                config_file=self._files,
                context=self._context or None,
                client_configuration=fresh,
                persist_config=False,
            )
        except (
            loaders.ConfigException,
            yaml.YAMLError,
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
        ) as error:
            raise Unconfigured(f"kubeconfig {self._files} cannot be used: {error}") from error
        token = str(fresh.api_key.get(_BEARER, "")).strip()
        if token:
            fresh.api_key[_BEARER] = token
        elif fresh.host.startswith("https:") and not fresh.cert_file:
            raise Unconfigured(
                f"kubeconfig {self._files} gives no credentials for its context; where it names"
                " an exec plugin, the log says how that failed"
            )
        self._expires = getattr(loader, "exec_plugin_expiry", None)
        for field in _KUBECONFIG_FIELDS:
            setattr(self.configuration, field, getattr(fresh, field))

    async def renew(self) -> bool:
        if not self._running:
            return False
        renewed = self._renewed
        self._refused.set()
        await renewed.wait()
        return True

    async def run(self) -> None:
        self._running = True
        try:
            while True:
                with anyio.move_on_after(self._rest_s()):
                    await self._refused.wait()
                await self._reload()
        finally:
            self._running = False
            self._renewed.set()

    async def _reload(self) -> None:
        error: Unconfigured | None = None
        with anyio.move_on_after(_RELOAD_S) as limit:
            try:
                await self.load()
            except Unconfigured as unconfigured:
                error = unconfigured
        self._refused, renewed, self._renewed = anyio.Event(), self._renewed, anyio.Event()
        renewed.set()
        if error is not None or limit.cancelled_caught:
            reason = str(error or "its exec plugin did not end")
            logger.warning("kubeconfig was not read", extra={"error": reason})
            await anyio.sleep(self._least_rest_s)

    def _rest_s(self) -> float:
        if self._expires is None:
            return float("inf")
        left_s = (self._expires - datetime.now(UTC)).total_seconds()
        return max(self._least_rest_s, 0.8 * left_s)
