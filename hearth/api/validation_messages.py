"""Messages of validation errors: each says what to write instead."""

import difflib
from collections.abc import Collection
from typing import Any

from pydantic_core import ErrorDetails

from hearth.api import core_objects, kubernetes, runtime

_PATTERNS = {
    kubernetes.PORT_NAME_PATTERN: "the name of a port is made of lower-case letters, digits and"
    " single hyphens, at most 15, with at least one letter",
    runtime.RESOURCE_PATTERN: "a device's name is made of letters, digits, hyphens, dots and"
    " underscores, with a domain before a slash, such as nvidia.com/gpu",
    core_objects.KEY_PATTERN: "a key is made of letters, digits, hyphens, dots and underscores",
}
"""What a text must look like, by the pattern that says it to a machine."""
_OTHER_FORM = "has another form"
_LEFT_OUT = {
    "fileKeyRef": "a runtime's pods have no volume for such a file: use secretKeyRef or "
    "configMapKeyRef",
}
"""Fields of Kubernetes that people may write, and Hearth's kinds do not have."""


def message(error: ErrorDetails, *, fields: Collection[str]) -> str:
    """`fields` are those that exist where the error is."""
    limits: dict[str, Any] = error.get("ctx", {})
    value = error["input"]
    match error["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return _unknown(str(error["loc"][-1]), fields)
        case "literal_error":
            return f"must be {limits['expected']}, not {_shown(value)}"
        case "int_type" | "int_parsing" | "int_from_float":
            return f"must be a whole number, not {_shown(value)}"
        case "bool_type" | "bool_parsing":
            return f"must be true or false, not {_shown(value)}"
        case "string_type":
            hint = " (put it in quotes)" if isinstance(value, bool | int | float) else ""
            return f"must be a string, not {_shown(value)}{hint}"
        case "list_type":
            return f"must be a list, not {_shown(value)}"
        case "dict_type" | "model_type":
            return f"must be a mapping of fields, not {_shown(value)}"
        case "greater_than_equal":
            return f"must be at least {limits['ge']}, not {value}"
        case "less_than_equal":
            return f"must be at most {limits['le']}, not {value}"
        case "string_too_short" | "too_short":
            return "must not be empty"
        case "string_too_long":
            return f"must have at most {limits['max_length']} characters"
        case "too_long":
            return f"must have at most {limits['max_length']} items"
        case "string_pattern_mismatch":
            return f"{_PATTERNS.get(limits['pattern'], _OTHER_FORM)}, unlike {_shown(value)}"
        case "value_error":
            return str(limits["error"])
        case _:
            return f"cannot be {_shown(value)}"


def _unknown(name: str, fields: Collection[str]) -> str:
    if name in _LEFT_OUT:
        return f"is not supported; {_LEFT_OUT[name]}"
    close = difflib.get_close_matches(name.lower(), {f.lower(): f for f in fields}, n=1)
    if close:
        right = next(f for f in fields if f.lower() == close[0])
        return f"is not a field; did you mean {right}?"
    return f"is not a field; there are {', '.join(fields)}" if fields else "is not a field"


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}...'"
