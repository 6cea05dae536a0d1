"""Which services a Host header stands for."""

import ipaddress
import re
from dataclasses import dataclass

from hearth import web_origin
from hearth.api import rules
from hearth.api.meta import ServiceKey

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Everything:
    """Every namespace; `model` is `namespace/name`."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace; `model` is a service's name."""

    name: str


@dataclass(frozen=True, slots=True)
class OneService:
    """One service; any `model` is accepted."""

    key: ServiceKey


Scope = Everything | Namespace | OneService


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTable:
    """The names this gateway answers to; `scope` tries the design's rows from the top."""

    ingress_domains: tuple[str, ...] = ()
    """Shared host names outside the cluster."""
    own_hosts: tuple[str, ...] = ()
    """More names of this machine that no stranger's DNS can lead here; `.name` is any below it."""
    gateway_service: str = "hearth-gateway"
    gateway_namespace: str = "hearth-system"
    shared_service: str = rules.RESERVED_NAME
    """Name of the Service in each namespace that leads to the gateway."""
    cluster_domain: str = "cluster.local"

    def scope(self, host: str) -> Scope | None:
        """What `host` (a Host header, port allowed) stands for; None for an unknown one."""
        name = _name(host)
        if name is None:
            return None
        if name in self._shared() or name == "localhost" or _is_ip(name):
            return Everything()
        for domain in self._domains():
            if not name.endswith(f".{domain}"):
                continue
            match _labels(name.removesuffix(f".{domain}")):
                case (service, namespace):
                    return OneService(ServiceKey(namespace, service))
                case (namespace,):
                    return Namespace(namespace)
                case _:
                    return None
        if any(name.endswith(own) if own.startswith(".") else name == own for own in self._own()):
            return Everything()
        inner = name.removesuffix(f".{_lower(self.cluster_domain)}")
        if inner != name and not inner.endswith(".svc"):
            return None
        match _labels(inner.removesuffix(".svc")):
            case (service, namespace) if service == self.shared_service:
                return Namespace(namespace)
            case (service, namespace):
                return OneService(ServiceKey(namespace, service))
            case _:
                return None

    def owns(self, host: str) -> bool:
        """Whether no stranger's DNS can lead `host` here.  A short name of a service may be that of
        a site: `chat.ai`."""
        domains = (*self._domains(), *self._own(), _lower(self.cluster_domain))
        return web_origin.is_private_host(host, domains=domains)

    def usable_hosts(self) -> str:
        """The hosts that would work, for a person."""
        rows = []
        for domain in self.ingress_domains:
            rows.append(f"{domain} (model 'namespace/name')")
            rows.append(f"<namespace>.{domain} (model 'name')")
            rows.append(f"<name>.<namespace>.{domain} (any model)")
        if not self.ingress_domains:
            shared = f"{self.gateway_service}.{self.gateway_namespace}"
            rows.append(f"{shared}, an IP or localhost (model 'namespace/name')")
            rows.append("this gateway's own host name, once --ingress-domain says it")
        rows.append(f"{self.shared_service}.<namespace>.svc (model 'name')")
        rows.append("<name>.<namespace>.svc (any model)")
        return "; ".join(rows)

    def one_service_hosts(self, scope: Scope) -> str:
        """What the hosts look like under which one service of a scope is asked."""
        namespace = scope.name if isinstance(scope, Namespace) else "<namespace>"
        domain = _lower(self.ingress_domains[0]) if self.ingress_domains else "svc"
        return f"<name>.{namespace}.{domain}"

    def own_name_hint(self, key: ServiceKey) -> str:
        """What to say of a host that reads as a service which is not there: `laptop.local` may be
        this machine.  No name is taken for the gateway's own unasked: that is what keeps a web
        page from reaching it by a name of its maker's (DNS rebinding)."""
        name = f"{key.name}.{key.namespace}"
        return "" if self.ingress_domains else _called(name)

    def unknown_name_hint(self, host: str) -> str:
        """The same of a host that stands for nothing: `models`, of a compose file or of nginx."""
        name = _name(host)
        known = (*self._domains(), _lower(self.cluster_domain))
        if not name or not _labels(name) or any(name.endswith(f".{domain}") for domain in known):
            return ""
        return _called(name)

    def _shared(self) -> tuple[str, ...]:
        service, namespace = self.gateway_service, self.gateway_namespace
        inside = f"{service}.{namespace}"
        names = (service, inside, f"{inside}.svc", f"{inside}.svc.{_lower(self.cluster_domain)}")
        return (*names, *self._domains())

    def _domains(self) -> tuple[str, ...]:
        """One that is below another comes first."""
        return tuple(sorted(map(_lower, self.ingress_domains), key=len, reverse=True))

    def _own(self) -> tuple[str, ...]:
        return tuple(name.lower().removesuffix(".") for name in self.own_hosts)


def _name(host: str) -> str | None:
    """Lower case, without port, brackets and trailing dot; None where that is no host."""
    text = host.strip().lower()
    if text.startswith("["):
        name, bracket, port = text[1:].partition("]")
        if not bracket or (port and not re.fullmatch(r":[0-9]*", port)):
            return None
        return name if _is_ip(name) else None
    if text.count(":") > 1:
        return text
    name, colon, port = text.partition(":")
    if colon and port and not port.isdecimal():
        return None
    return name.removesuffix(".") or None


def _called(name: str) -> str:
    return f" If {name} is this gateway's own name, start it with --ingress-domain {name}."


def _labels(name: str) -> tuple[str, ...]:
    labels = tuple(name.split("."))
    return labels if all(_LABEL.fullmatch(label) for label in labels) else ()


def _lower(domain: str) -> str:
    return domain.strip(".").lower()


def _is_ip(name: str) -> bool:
    if not name[-1:].isdigit() and ":" not in name:
        # Names of services, nearly always; the full look takes longer than all the rest.
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
