"""What every Kubernetes object has, and how Kubernetes spells times and amounts."""

import datetime
import re
import time
from decimal import Decimal
from typing import Any, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from hearth.api import groups

Manifest = dict[str, Any]
"""One Kubernetes object as JSON: a plain dict."""

_DURATION_PART = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)"
DURATION_PATTERN = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"
_NANOSECONDS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6,
    "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip

QUANTITY_PATTERN = (
    r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][-+]?[0-9]{1,2})?$"
)
_SUFFIX = {
    **{unit: Decimal(1000) ** power for power, unit in zip((-3, -2, -1), "num", strict=True)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}


FieldPath = tuple[str | int, ...]
"""Where a field is, from the top of a manifest: names of fields and indexes of items."""


def format_path(path: FieldPath) -> str:
    """A field path as people write it: `spec.container.env[2].name`."""
    text = ""
    for step in path:
        if isinstance(step, str) and re.fullmatch(r"[A-Za-z][-\w]*", step):
            text += f".{step}" if text else step
        else:
            text += f"[{step}]"
    return text


class ServiceKey(NamedTuple):
    """Which LLMService: unique across both API groups (the later of two is refused)."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Duration(float):
    """A duration in seconds, written as Go and Kubernetes write it: `10s`, `2m`, `1h30m`, `500ms`.

    A `float` of seconds everywhere inside Hearth.  `Duration.parse` raises ValueError.
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read Go's spelling; a bare number (except 0) or a unit Go lacks is a ValueError."""
        if not re.fullmatch(DURATION_PATTERN, text):
            raise ValueError(f"{text!r} is not a duration; write for example 10s, 2m or 1h30m")
        parts = re.findall(_DURATION_PART, text)
        # As Go does: whole nanoseconds, in 64 bits.
        total = sum(int(Decimal(number) * _NANOSECONDS[unit]) for number, unit in parts)
        if total >= 2**63:
            raise ValueError(f"{text!r} is too long for a duration")
        return cls(-total / 10**9 if text.startswith("-") else total / 10**9)

    def __str__(self) -> str:
        seconds = float(self)
        for size, unit in ((3600, "h"), (60, "m")):
            if seconds and seconds % size == 0:
                return f"{int(seconds // size)}{unit}"
        return f"{seconds:g}s"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: Any) -> Duration:
            if isinstance(value, Duration):
                return value
            if not isinstance(value, str):
                raise ValueError("a duration is a string such as 10s, 2m or 1h30m")
            return cls.parse(value)

        return core_schema.no_info_plain_validator_function(
            read, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "maxLength": 32, "pattern": DURATION_PATTERN}


class Quantity(str):
    """A Kubernetes resource quantity as it was written; `amount` compares `1000m` equal to `1`."""

    __slots__ = ()

    @property
    def amount(self) -> Decimal:
        """The amount in base units (cores, bytes)."""
        match = re.fullmatch(QUANTITY_PATTERN, self)
        if match is None:
            raise ValueError(f"{str(self)!r} is not a quantity; write for example 8, 500m or 32Gi")
        number, suffix = match[1], match[3] or ""
        if suffix[1:].lstrip("+-").isdigit():
            return Decimal(number).scaleb(int(suffix[1:]))
        return Decimal(number) * _SUFFIX.get(suffix, Decimal(1))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: Any) -> Quantity:
            # No floats: the API server refuses `cpu: 0.5` too, and wants it quoted.
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise ValueError("a quantity is a whole number or a string such as '0.5' or 32Gi")
            quantity = cls(str(value))
            _ = quantity.amount  # raises ValueError
            return quantity

        return core_schema.no_info_plain_validator_function(
            read, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "minimum": 0,
            "maxLength": 32,
            "pattern": QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": True,
        }


class Model(BaseModel):
    """Base of everything people write: camelCase outside, snake_case inside, frozen.

    Strict about types, as the API server is.  Lenient on unknown fields (an older Hearth must read
    a newer object) and on nulls (absent); `manifests` refuses both where people write files.
    The docstring under each field is its description in CRDs and docs.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if isinstance(data, dict) and None in data.values():
            return {name: value for name, value in data.items() if value is not None}
        return data

    def manifest(self) -> Manifest:
        """What was written, in Kubernetes' spelling; fields that were not set are left out."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class Metadata(Model):
    """The part of ObjectMeta that Hearth reads."""

    model_config = ConfigDict(extra="allow")

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class CustomResource(Model):
    """What objects of both our kinds have beside their spec."""

    api_version: str = f"{groups.HEARTH}/{groups.VERSION}"
    kind: str
    metadata: Metadata

    @field_validator("status", mode="wrap", check_fields=False)
    @classmethod
    def _status_never_fails(cls, value: Any, read: ValidatorFunctionWrapHandler) -> Any:
        # Written by a program, maybe by a newer one: what cannot be read is written anew.
        try:
            return read(value)
        except ValueError:
            return cls.model_fields["status"].default

    @property
    def group(self) -> str:
        return self.api_version.partition("/")[0]


def go_duration(seconds: float) -> str:
    """A duration as Go prints it: `10s`, `2m40s`, `500ms`; `str(Duration)` is what people write."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{f'{hours}h' if hours else ''}{f'{minutes}m' if hours or minutes else ''}{rest:g}s"


def key_of(manifest: Manifest) -> ServiceKey:
    """Namespace and name of any object (namespace is empty for cluster-scoped ones)."""
    metadata = manifest["metadata"]
    return ServiceKey(metadata.get("namespace", ""), metadata["name"])


def find_condition(manifest: Manifest, kind: str) -> Manifest:
    """The condition of that type in an object's status; empty where there is none."""
    for condition in (manifest.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind:
            return dict(condition)
    return {}


def is_condition_true(manifest: Manifest, kind: str) -> bool:
    """Whether an object has the condition of that type, with the status True."""
    return find_condition(manifest, kind).get("status") == "True"


def transition_time(before: Manifest, status: str, *, now: str) -> str:
    """The lastTransitionTime of a condition that is `status` now; `before`: as it was, or empty."""
    same = before.get("status") == status
    return str(before["lastTransitionTime"]) if same else now


def rfc3339(moment: datetime.datetime | float) -> str:
    """A time, or Unix seconds, as Kubernetes writes a Time: UTC, whole seconds (cut off)."""
    return _utc(moment).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: datetime.datetime | float) -> str:
    """The same as a MicroTime: six digits."""
    return _utc(moment).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def rfc3339_milli(unix_s: float) -> str:
    """Unix seconds as log lines have them: UTC, three digits (cut off)."""
    whole, milli = divmod(int(unix_s * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{milli:03}Z"


def unix_s(timestamp: str) -> float:
    """A Time or MicroTime as Unix seconds.  Raises ValueError."""
    return datetime.datetime.fromisoformat(timestamp).timestamp()


def _utc(moment: datetime.datetime | float) -> datetime.datetime:
    if isinstance(moment, datetime.datetime):
        return moment.astimezone(datetime.UTC)
    return datetime.datetime.fromtimestamp(moment, datetime.UTC)
