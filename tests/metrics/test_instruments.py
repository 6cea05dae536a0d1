"""The table of instruments, and the page made from it."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from hearth.demand import DemandTable
from hearth.metrics import instruments, prometheus
from hearth.routes import RouteTable

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_is_what_the_table_says():
    assert PAGE.read_text() == instruments.document(), "run scripts/generate"


async def test_every_instrument_is_served_and_no_other():
    metrics = prometheus.Metrics(demand=DemandTable(linger_s=30), routes=RouteTable())
    text, _ = await metrics.render()
    served = {
        family.name: (family.documentation, family.type)
        for family in text_string_to_metric_families(text.decode())
        if family.name.startswith("hearth_") and not family.name.endswith("_created")
    }
    assert served == {
        i.name.removesuffix("_total"): (i.help, i.type) for i in instruments.INSTRUMENTS
    }
