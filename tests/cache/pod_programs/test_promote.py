import json

from hearth.cache import program_texts
from tests.cache.pod_programs import programs


def promote(folder):
    return programs.run(
        program_texts.PROMOTE,
        HEARTH_SOURCE="oci://r/m@sha256:1",
        HEARTH_STAGING=folder / "staging",
        HEARTH_TARGET=folder / "cache/model",
        HEARTH_MARKER=folder / "cache/model/.hearth-ready",
    )


def test_files_come_to_their_place_and_the_marker_with_them(tmp_path):
    (tmp_path / "staging/inner").mkdir(parents=True)
    (tmp_path / "staging/inner/weights").write_text("w")
    assert promote(tmp_path)[0] == 0
    assert (tmp_path / "cache/model/inner/weights").read_text() == "w"
    marker = json.loads((tmp_path / "cache/model/.hearth-ready").read_text())
    assert marker["source"] == "oci://r/m@sha256:1"


def test_a_link_is_refused(tmp_path):
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging/weights").symlink_to("/etc/passwd")
    code, _, said = promote(tmp_path)
    assert (code, said.startswith("weights: ")) == (1, True)
    assert not (tmp_path / "cache/model").exists()
