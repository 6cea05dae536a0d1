"""One row of the two public references: a field or a sentence, and the tests that show it."""

from dataclasses import dataclass
from typing import Any

SERVICES = "tests/reconcile/reference/test_services.py"
FIELD = "tests/reference/test_fields.py::test_a_field_is_as_its_row_says"
"""Shows a row that says nothing but type, default and constraint."""
HEARTH, NOCTAYA = "hearth", "noctaya"
BOTH = f"{HEARTH} {NOCTAYA}"


def served(*names: str) -> list[str]:
    """Tests of pods that are compared with those that were seen."""
    return [f"{SERVICES}::test_the_same_spec_comes_to_the_same_pod[{name}]" for name in names]


def refused(*names: str) -> list[str]:
    """Tests of refusals that are compared with those that were seen."""
    test = "test_the_same_spec_is_refused_for_the_same_reason"
    return [f"{SERVICES}::{test}[{name}]" for name in names]


def unstored(*names: str) -> list[str]:
    """Tests of what the schema does not let in."""
    return [f"{SERVICES}::test_what_its_schema_refuses_is_not_served[{name}]" for name in names]


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of a table of the references."""

    path: str
    type: str
    shows: list[str]
    kind: str = "LLMService"
    of: str = BOTH
    """Which references have it; in the API group of each it is held to its row."""
    default: Any = None
    by_controller: bool = False
    """Whether the default is one that is not stored."""
    within: tuple[tuple[str, Any], ...] = ()
    """What else is set around it, so that it can be."""
    good: tuple[Any, ...] = ()
    bad: tuple[Any, ...] = ()
    """Values that are let in, and such that are not; GONE leaves the field out."""

    @property
    def id(self) -> str:
        """As a test's mark has it: with its reference, where only one has the field."""
        return self.path if self.of == BOTH else f"{self.of}:{self.path}"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A refusal, phase, condition, reason, or a sentence of the text around the tables."""

    id: str
    says: str
    shows: list[str]
    of: str = BOTH


def field(path: str, type: str, *shows: str | list[str], **more: Any) -> Field:
    """A row; `shows` may be lists of tests."""
    flat = [t for one in shows for t in ([one] if isinstance(one, str) else one)]
    return Field(path=path, type=type, shows=flat, **more)


def claim(id: str, says: str, *shows: str | list[str], of: str = BOTH) -> Claim:
    """Likewise."""
    flat = [t for one in shows for t in ([one] if isinstance(one, str) else one)]
    return Claim(id=id if of == BOTH else f"{of}:{id}", says=says, shows=flat, of=of)
