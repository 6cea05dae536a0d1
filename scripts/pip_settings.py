"""What pip is told by files and variables, told to uv, which reads none of it."""

import ast
from collections.abc import Mapping
from pathlib import Path

NO_MATTER = {
    "break-system-packages", "compile", "config-file", "debug", "disable-pip-version-check",
    "exists-action", "log", "no-color", "no-compile", "no-input", "no-python-version-warning",
    "no-warn-conflicts", "no-warn-script-location", "prefer-binary", "progress-bar", "quiet",
    "require-virtualenv", "root-user-action", "verbose",
}  # fmt: skip
"""Settings that change nothing of which packages come, and from where."""


class NotForUvError(Exception):
    """There is something that pip does and uv does not."""


def read(listed: str) -> dict[str, str]:
    """Those that `pip install` heeds, from what `pip config list` says; variables count most."""
    found = {}
    for section in ("global", "install", ":env:"):
        for line in listed.splitlines():
            key, _, value = line.partition("=")
            where, _, name = key.rpartition(".")
            if where == section and (text := str(ast.literal_eval(value)).strip()):
                found[name] = text
    return found


def uv_environment(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables by which uv does as pip would; uv's own, where set, count more.

    Raises NotForUvError where it cannot.
    """
    bundle = environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE")
    env = _certificates(bundle) if bundle else {}
    for name, value in settings.items():
        env |= _translated(name, value)
    return {**environ, **env, **{name: environ[name] for name in environ if name[:3] == "UV_"}}


def _translated(name: str, value: str) -> dict[str, str]:
    match name:
        case "index-url" | "pypi-url":
            return {"UV_DEFAULT_INDEX": value}
        case "extra-index-url":
            # All indexes are equal, as with pip: what comes is held to the hashes of the lock.
            urls = " ".join(value.split())
            return {"UV_INDEX": urls, "UV_INDEX_STRATEGY": "unsafe-best-match"}
        case "no-index":
            return {"UV_NO_INDEX": "1"} if _is_true(value) else {}
        case "find-links":
            # Folders that are missing are an error of uv's, and none of pip's.
            places = [one for one in value.split() if "://" in one or Path(one).exists()]
            return {"UV_FIND_LINKS": ",".join(places)} if places else {}
        case "trusted-host":
            return {"UV_INSECURE_HOST": " ".join(value.split())}
        case "cert":
            return _certificates(value)
        case "client-cert":
            return {"SSL_CLIENT_CERT": value}
        case "proxy":
            url = value if "://" in value else f"http://{value}"
            names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
            return dict.fromkeys([*names, *(each.lower() for each in names)], url)
        case "timeout" | "default-timeout":
            return {"UV_HTTP_TIMEOUT": str(max(1, int(float(value))))}
        case "retries":
            return {"UV_HTTP_RETRIES": value}
        case "cache-dir":
            return {"UV_CACHE_DIR": f"{value}/uv"}
        case "no-cache-dir":
            return {"UV_NO_CACHE": "1"} if _is_true(value) else {}
        case "use-feature" if value == "truststore":
            return {"UV_SYSTEM_CERTS": "1"}
        case "keyring-provider" if value in ("auto", "disabled"):
            return {}
        case "keyring-provider" if value == "subprocess":
            return {"UV_KEYRING_PROVIDER": value}
        case _ if name in NO_MATTER:
            return {}
        case _:
            raise NotForUvError(f"pip's setting {name} has no counterpart")


def _certificates(path: str) -> dict[str, str]:
    return {"SSL_CERT_DIR" if Path(path).is_dir() else "SSL_CERT_FILE": path}


def _is_true(value: str) -> bool:
    return value.lower() in ("1", "true", "t", "yes", "y", "on")
