from hearth.cache import program_texts
from tests import hanging
from tests.cache.pod_programs import programs


def test_it_ends_at_once_where_one_marker_is_there(tmp_path):
    (tmp_path / "theirs").touch()
    markers = f"{tmp_path}/ours:{tmp_path}/theirs"
    assert programs.run(program_texts.WAIT, HEARTH_WAIT_FOR=markers) == (0, "", "")


def test_it_says_what_it_waits_for_and_ends_once_it_is_there(tmp_path):
    child = programs.start(program_texts.WAIT, HEARTH_WAIT_FOR=f"{tmp_path}/a:{tmp_path}/b")
    with child:
        said = child.stdout.readline()
        (tmp_path / "b").touch()
        assert child.wait(hanging.limit_s(60)) == 0
    assert f"{tmp_path}/a or {tmp_path}/b" in said


def test_a_folder_is_no_marker(tmp_path):
    (tmp_path / "a").mkdir()
    child = programs.start(program_texts.WAIT, HEARTH_WAIT_FOR=f"{tmp_path}/a")
    with child:
        assert child.stdout.readline()
        child.kill()


def test_it_ends_when_it_is_told_to(tmp_path):
    child = programs.start(program_texts.WAIT, HEARTH_WAIT_FOR=f"{tmp_path}/a")
    with child:
        assert child.stdout.readline()
        child.terminate()
        assert child.wait(hanging.limit_s(60)) == 143


def test_it_ends_when_its_pod_is_no_longer_wanted(tmp_path):
    """By its own doing: the first process of a container is not ended by a signal alone."""
    child = programs.start(program_texts.WAIT, HEARTH_WAIT_FOR=f"{tmp_path}/a")
    with child:
        assert child.stdout.readline()
        child.terminate()
        assert child.wait(hanging.limit_s(60)) == 143
