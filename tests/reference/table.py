"""All rows together."""

from tests.reference import claim_rows, runtime_rows, service_rows
from tests.reference.row import Claim, Field

FIELDS: list[Field] = [*service_rows.ROWS, *runtime_rows.ROWS]
ROWS: list[Field | Claim] = [*FIELDS, *claim_rows.ROWS]


def shown_by(test: str) -> list[str]:
    """The rows that name a test."""
    return [row.id for row in ROWS if test in row.shows]
