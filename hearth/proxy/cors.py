"""What browsers that call from another site are told."""

from collections.abc import Iterable

from hearth.proxy import headers


def response_fields(origin: str | None, allowed: Iterable[str]) -> dict[str, str]:
    """What browsers want to see beside an answer; empty where nothing is configured."""
    origins = tuple(allowed)
    if not origins:
        return {}
    fields = {"Vary": "Origin"}
    if origin is not None and ("*" in origins or origin in origins):
        fields["Access-Control-Allow-Origin"] = origin
        fields["Access-Control-Expose-Headers"] = ", ".join(headers.EXPOSED)
    return fields


def preflight(origin: str | None, allowed: Iterable[str], *, wanted: str | None) -> dict[str, str]:
    """The answer to a browser's OPTIONS."""
    fields = response_fields(origin, allowed)
    if "Access-Control-Allow-Origin" in fields:
        fields["Access-Control-Allow-Methods"] = "GET, POST, DELETE, OPTIONS"
        fields["Access-Control-Allow-Headers"] = _text(wanted or "Authorization, Content-Type")
        fields["Access-Control-Max-Age"] = "600"
    return fields


def _text(value: str) -> str:
    """Header bytes that are not UTF-8 cannot be written again: shown as replacement marks."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
