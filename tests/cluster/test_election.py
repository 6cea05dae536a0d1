import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster import election
from hearth.cluster.election import ObservedLease, Timing

KEY = ServiceKey("hearth-system", "hearth")
FIRST = election.first(KEY, "me", wall_s=0.0, duration_s=15)


def lease(holder="you", *, version="1", renewed="r", **spec):
    return {
        "metadata": {"name": "hearth", "resourceVersion": version},
        "spec": {"holderIdentity": holder, "renewTime": renewed, **spec},
    }


def test_two_tries_and_a_margin_fit_the_renew_deadline():
    timing = Timing()
    assert 2 * timing.try_s + 1.2 * timing.retry_s < timing.renew_s
    assert timing.renew_s < timing.cut_s < timing.duration_s


@pytest.mark.parametrize(
    ("spec", "holder"),
    [({}, ""), (None, ""), ({"holderIdentity": None}, ""), ({"holderIdentity": "me"}, "me")],
)
def test_lease_holder(spec, holder):
    assert election.holder({"spec": spec}) == holder


@pytest.mark.parametrize(
    ("seen", "before", "until"),
    [
        (lease(leaseDurationSeconds=30), None, 130.0),
        (lease(), None, 115.0),
        (lease(leaseDurationSeconds=30), ObservedLease("you", ("r", "1"), 104.0, 96.0), 104.0),
        (
            lease(version="2", leaseDurationSeconds=30),
            ObservedLease("you", ("r", "1"), 104.0, 96.0),
            130.0,
        ),
        (
            lease(renewed="s", leaseDurationSeconds=30),
            ObservedLease("you", ("r", "1"), 104.0, 96.0),
            130.0,
        ),
    ],
)
def test_another_holders_lease_runs_from_its_first_observation(seen, before, until):
    found = election.observe(seen, before, now=100.0, timing=Timing())
    assert (found.holder, found.until) == ("you", until)


def test_a_deleted_lease_runs_from_its_observation():
    before = ObservedLease("you", ("r", "1"), 50.0, 98.0)
    gone = election.observe_missing(before, now=100.0, timing=Timing())
    assert (gone.holder, gone.until) == ("you", 115.0)
    assert election.observe_missing(gone, now=110.0, timing=Timing()).until == gone.until
    back = election.observe(lease(), gone, now=112.0, timing=Timing())
    assert back.until == 127.0


def test_after_an_own_outage_another_holders_lease_runs_anew():
    before = election.observe(lease(), None, now=100.0, timing=Timing())
    for now in (104.0, 114.0):
        before = election.observe(lease(), before, now=now, timing=Timing())
        assert (before.until, before.at) == (115.0, now)
    assert election.observe(lease(), before, now=144.0, timing=Timing()).until == 159.0


def test_identity_prefix_of_one_pod():
    pod = election.own_pod("hearth-1", "uid-1")
    assert f"{pod}ab12".startswith(pod)
    others = [("hearth-1", "uid-2"), ("hearth-1", "uid-11"), ("hearth-11", "uid-1")]
    assert not any(election.own_pod(*other).startswith(pod) for other in others)
    assert [election.own_pod("hearth-1", ""), election.own_pod("", "uid-1")] == ["", ""]


def test_takeover_counts_a_lease_transition():
    taken = election.claimed(
        lease(leaseTransitions=4, strategy="kept"), "me", wall_s=1.0, duration_s=15
    )
    assert taken["metadata"]["resourceVersion"] == "1"
    assert taken["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "1970-01-01T00:00:01.000000Z",
        "renewTime": "1970-01-01T00:00:01.000000Z",
        "leaseTransitions": 5,
        "strategy": "kept",
    }


def test_renewal_counts_no_lease_transition():
    renewed = election.claimed(FIRST, "me", wall_s=1.0, duration_s=15)
    assert renewed["spec"]["acquireTime"] == "1970-01-01T00:00:00.000000Z"
    assert renewed["spec"]["renewTime"] == "1970-01-01T00:00:01.000000Z"
    assert renewed["spec"]["leaseTransitions"] == 0


def test_released_lease_is_free_at_once():
    spec = election.given_back(FIRST, wall_s=2.0)["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("", 1)
    assert spec["leaseTransitions"] == 0


@pytest.mark.parametrize(
    ("spec", "never"), [(None, True), ({"renewTime": None}, True), ({"renewTime": "r"}, False)]
)
def test_a_lease_as_the_chart_makes_it_was_never_held(spec, never):
    assert election.never_held({"spec": spec}) is never
