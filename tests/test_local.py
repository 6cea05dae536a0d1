"""What `hearth local` cannot do is one line; tests/lifecycle has the rest, as a person runs it."""

import pytest

from hearth import local
from hearth.app import CannotStart
from hearth.cluster.local import leftovers
from hearth.settings import LocalSettings


def settings(folder, **fields):
    free = {"gateway_port": 0, "admin_port": 0, "scaler_port": 0}
    mine = {"files": (folder,), "state_dir": folder / "state"}
    return LocalSettings(**(free | mine | fields))


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(CannotStart, match=r"nowhere\.yaml: no such file or folder"):
        local.run(settings(tmp_path, files=(tmp_path / "nowhere.yaml",)))


def test_a_command_that_is_not_closed(tmp_path):
    with pytest.raises(CannotStart, match="the command of image 'engine' is not closed"):
        local.run(settings(tmp_path, images={"engine": "serve 'me"}))


def test_a_state_folder_in_use(tmp_path):
    state = tmp_path / "state"
    with leftovers.hold(state), pytest.raises(CannotStart, match="is in use by another hearth"):
        local.run(settings(tmp_path))


def test_a_state_folder_that_cannot_be(tmp_path):
    (tmp_path / "state").write_text("a file")
    with pytest.raises(CannotStart, match="choose another one with --state-dir"):
        local.run(settings(tmp_path))
