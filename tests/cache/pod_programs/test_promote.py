"""What puts a pulled artifact into the cache, as a process without rights, on hostile trees."""

import json
import os
import shutil
import signal
import socket
import tempfile
from itertools import count
from pathlib import Path

import pytest

from hearth.cache import program_texts
from tests.cache.pod_programs import programs
from tests.conftest import require

DIGEST = "sha256:" + "0123456789abcdef" * 4
SOURCE = f"oci://registry.example/models/tiny@{DIGEST}"
FILES = {"config.json": "{}", "inner/deep/weights": "w" * 100_000, "inner/more": ""}


class Volumes:
    """The staging folder and the cache of one pod, which its user may write to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.staging = folder / "staging/model"
        self.oci = folder / "cache/oci"
        self.target = self.oci / DIGEST.replace(":", "-")
        self.marker = self.target / ".hearth-ready"
        self.staging.mkdir(parents=True)
        for name, content in FILES.items():
            (self.staging / name).parent.mkdir(parents=True, exist_ok=True)
            (self.staging / name).write_text(content)
        (folder / "cache").mkdir()
        self.give(folder / "cache")

    def give(self, *paths):
        """To the program's user."""
        if os.getuid() == 0:
            for path in paths:
                os.chown(path, programs.NOBODY, programs.NOBODY)

    def earlier(self, *names, at=None):
        """Files that an earlier run left, by default at the target."""
        for name in names:
            path = (at or self.target) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("old")
        for where, _, files in os.walk(self.folder / "cache"):
            self.give(where, *(os.path.join(where, name) for name in files))

    @property
    def env(self):
        return {
            "HEARTH_SOURCE": SOURCE,
            "HEARTH_STAGING": self.staging,
            "HEARTH_TARGET": self.target,
            "HEARTH_MARKER": self.marker,
        }

    def promote(self, **options):
        return programs.run_as_nobody(program_texts.PROMOTE, **self.env, **options)

    def files(self):
        found = (path for path in self.target.rglob("*") if path.is_file())
        return {str(path.relative_to(self.target)): path.read_text() for path in found}

    def is_whole(self) -> bool:
        """Whether all of it is there and nothing else, beside what nobody may find."""
        found = self.files()
        marker = json.loads(found.pop(".hearth-ready", "{}"))
        assert [path.name for path in self.oci.iterdir()] == [self.target.name]
        return found == FILES and marker == {
            "source": SOURCE,
            "revision": DIGEST,
            "files": len(FILES),
            "bytes": sum(map(len, FILES.values())),
        }

    def nothing_came(self) -> bool:
        return not self.oci.exists() or list(self.oci.iterdir()) == []


@pytest.fixture
def volumes():
    # Not tmp_path: nobody else may enter that.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Volumes(Path(folder))


def test_files_come_to_their_place_and_the_marker_with_them(volumes):
    code, said, errors = volumes.promote()
    assert (code, errors) == (0, "")
    assert said == f"{volumes.target} is whole: 3 files\n"
    assert volumes.is_whole()

    for path in (volumes.target / "config.json", volumes.target):
        assert path.stat().st_mode & 0o044 == 0o044, "an engine of another user reads it"
    assert volumes.promote() == (0, "", "")


def test_it_leaves_no_rights_that_the_artifact_has(volumes):
    (volumes.staging / "config.json").chmod(0o6777)
    assert volumes.promote()[0] == 0
    assert (volumes.target / "config.json").stat().st_mode & 0o7133 == 0


def symbolic_link(staging):
    (staging / "evil").symlink_to("/etc/passwd")


def link_to_a_folder(staging):
    (staging / "evil").symlink_to("/etc")


def link_that_leads_nowhere(staging):
    (staging / "evil").symlink_to("../../nowhere")


def deep_link(staging):
    (staging / "inner/evil").symlink_to("more")


def hard_link(staging):
    outside = staging.parent / "secret"
    outside.write_text("of another")
    os.link(outside, staging / "evil")


def fifo(staging):
    os.mkfifo(staging / "evil")


def unix_socket(staging):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(staging / "evil"))


def device(staging):
    try:
        os.mknod(staging / "evil", 0o666 | 0o020000, os.makedev(1, 3))
        may = True
    except PermissionError:
        may = False
    require("mknod", may, "devices are made by root")


def marker(staging):
    (staging / ".hearth-ready").write_text("{}")


def marker_of_the_reference(staging):
    (staging / ".noctaya-ready").mkdir()


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (symbolic_link, "evil: a symbolic link; "),
        (link_to_a_folder, "evil: a symbolic link; "),
        (link_that_leads_nowhere, "evil: a symbolic link; "),
        (deep_link, "inner/evil: a symbolic link; "),
        (hard_link, "evil: a hard link; "),
        (fifo, "evil: a fifo; "),
        (unix_socket, "evil: a socket; "),
        (device, "evil: a device; "),
        (marker, ".hearth-ready: a marker, which only Hearth writes; "),
        (marker_of_the_reference, ".noctaya-ready: a marker, which only Hearth writes; "),
    ],
)
def test_what_a_model_may_not_hold(volumes, prepare, words):
    prepare(volumes.staging)
    code, said, errors = volumes.promote()
    assert (code, said) == (1, "")
    assert errors == f"{words}only folders and plain files may be in a model\n"
    assert volumes.nothing_came()


def test_names_that_look_like_paths_stay_names(volumes):
    """No folder holds `..` or an absolute name; these are what comes nearest."""
    names = ["..hidden", "...", "..\\..\\etc", "~", "-rf", "$HOME", "a\nb"]
    for name in names:
        (volumes.staging / name).write_text("n")
    assert volumes.promote()[0] == 0
    assert volumes.files().keys() >= set(names)
    assert {path.name for path in volumes.folder.iterdir()} == {"staging", "cache"}


def test_a_staging_folder_that_is_a_link(volumes):
    shutil.move(volumes.staging, volumes.folder / "elsewhere")
    volumes.staging.symlink_to(volumes.folder / "elsewhere")
    assert volumes.promote() == (1, "", f"{volumes.staging} is no folder\n")
    assert volumes.nothing_came()


def test_an_artifact_without_files(volumes):
    shutil.rmtree(volumes.staging)
    (volumes.staging / "inner").mkdir(parents=True)
    assert volumes.promote() == (1, "", f"nothing was pulled into {volumes.staging}\n")
    assert volumes.nothing_came()


def test_a_file_that_it_may_not_read(volumes):
    (volumes.staging / "inner/more").chmod(0)
    code, _, errors = volumes.promote()
    assert (code, errors.count("\n")) == (1, 1)
    uid = programs.NOBODY if os.getuid() == 0 else os.getuid()
    assert "inner/more'" in errors
    assert f"uid {uid} may not; let fsGroup or runAsUser own the volumes" in errors
    assert volumes.nothing_came()


def test_a_full_disk_leaves_nothing_half(volumes):
    done = programs.run(program_texts.PROMOTE, file_limit=100, **volumes.env)
    assert (done[0], done[2].count("\n")) == (1, 1)
    assert " GB free): give the cache more" in done[2]
    assert volumes.nothing_came()


def test_a_target_without_a_marker_and_stale_partials_go(volumes):
    volumes.earlier("config.json", "inner", "of-an-earlier-pull")
    volumes.earlier("weights", at=volumes.oci / f"{volumes.target.name}.partial-0123")
    volumes.earlier("weights", at=volumes.oci / f"{volumes.target.name}.partial-0123-old")
    assert volumes.promote()[0] == 0
    assert volumes.is_whole()


def test_another_artifact_stays(volumes):
    other = volumes.oci / f"sha256-{'f' * 64}"
    volumes.earlier("weights", ".hearth-ready", at=other)
    assert volumes.promote()[0] == 0
    assert (other / "weights").read_text() == "old"


def test_a_file_where_the_target_should_be(volumes):
    volumes.oci.mkdir()
    volumes.target.write_text("a file")
    volumes.earlier()
    assert volumes.promote()[0] == 0
    assert volumes.is_whole()


def test_a_link_where_the_target_should_be_is_not_followed(volumes):
    elsewhere = volumes.folder / "cache/elsewhere"
    volumes.earlier("precious", at=elsewhere)
    volumes.earlier(at=volumes.oci)
    volumes.oci.mkdir()
    volumes.earlier()
    volumes.target.symlink_to(elsewhere)
    assert volumes.promote()[0] == 0
    assert not volumes.target.is_symlink()
    assert volumes.is_whole()
    assert (elsewhere / "precious").read_text() == "old"


def test_a_file_where_the_folder_of_artifacts_should_be(volumes):
    volumes.oci.write_text("a file")
    code, _, errors = volumes.promote()
    assert (code, errors.count("\n")) == (1, 1)
    assert "a file stands where a folder should be; remove it" in errors
    assert volumes.oci.read_text() == "a file"


def test_what_the_reference_promoted_is_whole_and_stays_as_it_is(volumes):
    volumes.earlier("config.json", ".noctaya-ready")
    shutil.rmtree(volumes.staging)
    assert volumes.promote() == (0, f"{volumes.target} was whole already\n", "")
    found = volumes.files()
    assert json.loads(found.pop(".hearth-ready"))["source"] == SOURCE
    assert found == {"config.json": "old", ".noctaya-ready": "old"}


def test_a_folder_is_not_the_references_marker(volumes):
    volumes.earlier("config.json", ".noctaya-ready/inner")
    assert volumes.promote()[0] == 0
    assert volumes.is_whole()


def test_killed_anywhere_nothing_is_half_there(volumes):
    """Before each of its acts on files in turn; the next run makes it whole."""
    for at in count(1):
        shutil.rmtree(volumes.oci, ignore_errors=True)
        volumes.earlier("of-an-earlier-pull", "inner/more")
        volumes.earlier("weights", at=volumes.oci / f"{volumes.target.name}.partial-0123")
        code = volumes.promote(at=at)[0]
        if code == 0:
            break
        assert code == -signal.SIGKILL
        if volumes.marker.exists():
            found = volumes.files()
            del found[".hearth-ready"]
            assert found == FILES
        elif volumes.target.exists():
            assert volumes.files().keys() <= {"of-an-earlier-pull", "inner/more"}
        assert volumes.promote()[0] == 0
        assert volumes.is_whole()
    assert volumes.is_whole()
    assert at > 20


def test_two_runs_at_once_leave_one_whole_model(volumes):
    """One is stopped before each of its acts in turn, while the other runs from start to end."""
    for at in count(1):
        shutil.rmtree(volumes.oci, ignore_errors=True)
        volumes.earlier("of-an-earlier-pull")
        with programs.start_as_nobody(
            program_texts.PROMOTE, at=at, sent=signal.SIGSTOP, **volumes.env
        ) as stopped:
            if not os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1]):
                break
            assert volumes.promote()[0] == 0
            served = volumes.target.stat().st_ino
            stopped.send_signal(signal.SIGCONT)
            _, errors = stopped.communicate()
            assert (stopped.returncode, errors.count("\n")) in ((0, 0), (1, 1)), errors
        assert volumes.is_whole()
        assert volumes.target.stat().st_ino == served
    assert at > 20
