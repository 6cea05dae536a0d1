"""Faults as they are written."""

import pytest

from hearth.stub import faults
from hearth.stub.faults import Fault, Kind


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("crash", Fault(Kind.CRASH)),
        ("crash:0", Fault(Kind.CRASH, after=0)),
        (" reset:3 ", Fault(Kind.RESET, after=3)),
        ("hang", Fault(Kind.HANG)),
        ("close:12", Fault(Kind.CLOSE, after=12)),
        ("slow", Fault(Kind.SLOW)),
        ("end", Fault(Kind.END, after=0)),
        ("end:2", Fault(Kind.END, after=2)),
        ("error", Fault(Kind.ERROR, after=0)),
        ("bare-error:1", Fault(Kind.BARE_ERROR, after=1)),
        ("status", Fault(Kind.STATUS, status=500)),
        ("status:429", Fault(Kind.STATUS, status=429)),
    ],
)
def test_read(text, fault):
    assert faults.read(text) == fault


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("explode", "'explode' is not a fault; write one of crash, reset"),
        ("", "'' is not a fault"),
        ("crash:", "after the colon comes a whole number"),
        ("crash:-1", "after the colon comes a whole number"),
        ("status:200", "between 400 and 599"),
    ],
)
def test_a_mistake_is_told(text, message):
    with pytest.raises(faults.BadFault, match=message):
        faults.read(text)


def test_each_kind_is_explained():
    assert set(faults.MEANING) == set(Kind)
