import pytest

from hearth.cluster.interface import Expired
from hearth.cluster.local.apiserver.history import History, Record


def record(version, before, after):
    return Record(version, before, after, after or before)


IN, OUT = {"in": True}, {"in": False}


def selects(manifest):
    return manifest["in"]


@pytest.mark.parametrize(
    "before, after, seen",
    [
        (None, IN, ["ADDED"]),
        (IN, IN, ["MODIFIED"]),
        (IN, None, ["DELETED"]),
        (OUT, IN, ["ADDED"]),
        (IN, OUT, ["DELETED"]),
        (None, OUT, []),
        (OUT, OUT, []),
        (OUT, None, []),
    ],
)
def test_selector_turns_label_changes_into_added_and_deleted(before, after, seen):
    history = History(limit=4)
    history.add(record(7, before, after))
    assert [change.type for change in history.since(6, selects=selects)] == seen
    assert list(history.since(7, selects=selects)) == []


def test_a_version_before_the_history_has_expired():
    history = History(limit=2)
    for version in (3, 5, 9):
        history.add(record(version, None, IN))
    assert [c.version for c in history.since(3, selects=selects)] == ["5", "9"]
    with pytest.raises(Expired):
        history.since(2, selects=selects)
