"""The gate starts closed and tells of each turn."""

from hearth.keda.gate import STARTING, ScalerGate


def test_turns_are_told_once():
    gate, told = ScalerGate(), []
    gate.listen(lambda: told.append(gate.closed))
    stop = gate.listen(lambda: told.append("too much"))
    stop()
    assert gate.closed == STARTING
    gate.open()
    gate.open()
    gate.close("fenced")
    gate.close("stopping")
    gate.open()
    assert told == [None, "fenced", None]
    assert repr(gate) == "<ScalerGate open>"


def test_the_latest_reason_is_given():
    gate = ScalerGate()
    gate.close("fenced")
    assert gate.closed == "fenced"
    assert repr(gate) == "<ScalerGate fenced>"
