"""The states of an exchange: what happens is what its table says, and all of that happens."""

import re
from pathlib import Path

import pytest

from hearth.proxy.wire import states
from hearth.proxy.wire.exchange import Exchange
from hearth.proxy.wire.states import ExchangeState
from tests.proxy.wire import bothways
from tests.proxy.wire.bothways import GatewayFixture

ROOT = Path(__file__).parents[3]

Transitions = set[tuple[ExchangeState, ExchangeState]]


def table() -> Transitions:
    """That of the module's docstring."""
    found: Transitions = set()
    before = ""
    for line in (states.__doc__ or "").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 3 or cells[0] == "state" or cells[0].startswith("-"):
            continue
        before = cells[0] or before
        leaves = [s for s in ExchangeState if s is not ExchangeState.DONE]
        for state in leaves if before == "any" else [ExchangeState[before]]:
            found |= {(state, ExchangeState[name]) for name in cells[2].split("; ")}
    return found


@pytest.fixture
def seen(monkeypatch) -> Transitions:
    """What states follow each other, over all exchanges."""
    slot = Exchange.__dict__["state"]
    found: Transitions = set()

    class State:
        def __get__(self, made: Exchange | None, kind: type) -> object:
            return self if made is None else slot.__get__(made, kind)

        def __set__(self, made: Exchange, state: ExchangeState) -> None:
            try:
                before = slot.__get__(made, Exchange)
            except AttributeError:
                assert state is ExchangeState.NEW
            else:
                if state is not before:
                    found.add((before, state))
            slot.__set__(made, state)

    monkeypatch.setattr(Exchange, "state", State())
    return found


def test_every_state_has_its_row():
    assert {before for before, _ in table()} == {*ExchangeState} - {ExchangeState.DONE}
    assert re.search(r"\| any +\|.*\| DONE +\|", states.__doc__ or "")


async def test_random_scripts_take_the_ways_of_the_table(seen):
    for seed in range(150):
        await GatewayFixture(short=seed % 3 > 0).play(
            bothways.script(seed), lambda step, view: None
        )
    assert seen <= table()
    assert len(seen) > 12


def test_the_tables_are_drawn_in_the_docs():
    drawn = (ROOT / "docs/architecture.md").read_text()
    tables = re.findall(r"(?:^\|.*\n)+", states.__doc__ or "", re.MULTILINE)
    assert len(tables) == 2
    assert all(one in drawn for one in tables)
