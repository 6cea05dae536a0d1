import pytest

from hearth.api.meta import find_condition
from hearth.cluster.local.controllers import rollout
from hearth.cluster.local.controllers.rollout import Counts
from tests.cluster.local.controllers.workloads_of import NOW, at, deployment, spelled


def counts(replicas=0, *, updated=None, ready=0, least=0):
    return Counts(
        replicas=replicas,
        updated=replicas if updated is None else updated,
        ready=ready,
        least=least,
    )


def status(owner, numbers, *, template="h1", now=NOW):
    return rollout.status(owner, numbers, template=template, now=now)


def progress(found):
    condition = find_condition({"status": found}, "Progressing")
    return condition["status"], condition["reason"]


COMPLETE = ("True", "NewReplicaSetAvailable")
RUNNING = ("True", "ReplicaSetUpdated")
OVERDUE = ("False", "ProgressDeadlineExceeded")


def test_zero_counts_are_left_out_of_the_status():
    found = status(deployment(2, generation=7), counts(2, ready=1, updated=1))
    conditions = found.pop("conditions")
    assert found == {
        "observedGeneration": 7,
        "replicas": 2,
        "updatedReplicas": 1,
        "readyReplicas": 1,
        "availableReplicas": 1,
        "unavailableReplicas": 1,
    }
    assert [condition["type"] for condition in conditions] == ["Available", "Progressing"]
    assert set(status(deployment(0), counts())) == {"observedGeneration", "conditions"}


@pytest.mark.parametrize("ready, least, said", [(1, 1, "True"), (0, 1, "False")])
def test_available_condition(ready, least, said):
    found = status(deployment(1), counts(1, ready=ready, least=least))
    assert find_condition({"status": found}, "Available")["status"] == said


def test_unchanged_conditions_keep_their_times():
    first = status(deployment(1), counts(1, ready=1))
    again = status(deployment(1, status=first), counts(1, ready=1), now=at(500))
    assert again == first


def test_progressing_condition_over_a_rollout():
    started = status(deployment(1), counts(1, least=1))
    assert progress(started) == RUNNING
    assert rollout.deadline_in_s(deployment(), started, NOW) == 600
    assert rollout.deadline_in_s(deployment(), started, at(590)) == 10
    waiting = status(deployment(1, status=started), counts(1, least=1), now=at(599))
    assert waiting == started
    overdue = status(deployment(1, status=started), counts(1, least=1), now=at(600))
    assert progress(overdue) == OVERDUE
    assert rollout.deadline_in_s(deployment(), overdue, at(600)) is None
    still = status(deployment(1, status=overdue), counts(1, least=1), now=at(900))
    assert still == overdue
    done = status(deployment(1, status=overdue), counts(1, ready=1, least=1), now=at(901))
    assert progress(done) == COMPLETE
    lost = status(deployment(1, status=done), counts(1, least=1), now=at(5000))
    assert progress(lost) == COMPLETE
    assert find_condition({"status": lost}, "Available")["lastTransitionTime"] == spelled(5000)


def test_progress_extends_the_progress_deadline():
    started = status(deployment(2), counts(2))
    later = status(deployment(2, status=started), counts(2, ready=1), now=at(500))
    assert progress(later) == RUNNING
    assert rollout.deadline_in_s(deployment(), later, at(500)) == 600
    assert find_condition({"status": later}, "Progressing")["lastTransitionTime"] == spelled()


def test_removed_old_pods_are_progress():
    before = status(deployment(2), counts(3, updated=1))
    after = status(deployment(2, status=before), counts(2, updated=1), now=at(100))
    assert rollout.deadline_in_s(deployment(), after, at(100)) == 600


def test_scaling_from_zero_is_no_rollout():
    """So that a slow model is no failed rollout: its deadline was over at zero replicas."""
    idle = status(deployment(0), counts())
    assert progress(idle) == COMPLETE
    awake = status(deployment(1, status=idle), counts(1, least=1), now=at(5000))
    assert progress(awake) == COMPLETE


def test_a_new_template_is_a_new_rollout():
    done = status(deployment(1), counts(1, ready=1))
    changed = deployment(1, status=done, generation=2)
    rolling = status(changed, counts(2, updated=1, ready=1), template="h2", now=at(5000))
    assert progress(rolling) == RUNNING
    assert rollout.deadline_in_s(changed, rolling, at(5000)) == 600


def test_no_progress_deadline_without_a_condition():
    assert rollout.deadline_in_s(deployment(), {}, NOW) is None
