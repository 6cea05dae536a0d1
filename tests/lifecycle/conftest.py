"""A Hearth of one test's own; modules whose tests share one start it themselves."""

import pytest

from tests.lifecycle.harness import Hearth


@pytest.fixture
async def hearth(tmp_path):
    """Not started; stopped at the end, as a person would."""
    one = Hearth(tmp_path)
    yield one
    if hasattr(one, "process"):
        status = await one.stop()
        assert status == 0, one.errors
        assert "Traceback" not in one.errors, one.errors
        assert one.engines() == []
