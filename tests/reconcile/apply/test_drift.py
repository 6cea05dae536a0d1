"""Whether what was set still stands."""

import pytest

from hearth.reconcile.apply import drift


@pytest.mark.parametrize(
    ("wanted", "observed", "expected"),
    [
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {}, False),
        ({"a": {"b": 1}}, {"a": 1}, False),
        ({"a": [1]}, {"a": 1}, False),
        ({"a": [1, 2]}, {"a": [1, 2]}, True),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, False),
        # What is empty is not kept...
        ({"value": "", "n": 0, "l": [], "d": {}, "b": False}, {}, True),
        ({"emptyDir": {}}, {}, True),
        ({"d": {"e": ""}}, {}, True),
        ({"d": {"e": "x"}}, {}, False),
        # ...except where nothing means something else.
        ({"automountServiceAccountToken": False}, {}, False),
        ({"rollingUpdate": {"maxSurge": 0}}, {}, False),
        ({"cooldownPeriod": 0}, {"cooldownPeriod": 0}, True),
        # Quantities count by their amount, and only they do.
        ({"limits": {"memory": "1024Mi"}}, {"limits": {"memory": "1Gi"}}, True),
        ({"requests": {"cpu": "1000m"}}, {"requests": {"cpu": 1}}, True),
        ({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "2Gi"}}, False),
        ({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "odd"}}, False),
        ({"image": "1000m"}, {"image": "1"}, False),
        # Others may add an item to some lists.
        ({"env": [{"name": "A"}]}, {"env": [{"name": "B"}, {"name": "A", "value": "x"}]}, True),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "2"}]}, False),
        ({"env": [{"name": "A"}]}, {"env": [{"name": "B"}]}, False),
        ({"env": [{"name": "A"}]}, {"env": ["odd"]}, False),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "a"}, {"key": "b"}]}, False),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "a", "x": 1}]}, True),
    ],
)
def test_matches(wanted, observed, expected: bool):
    assert drift.matches(wanted, observed) is expected
