from hearth.cache import program_texts
from tests.cache.pod_programs import programs


def test_nothing_is_downloaded_where_the_marker_is(tmp_path):
    (tmp_path / "marker").touch()
    done = programs.run(
        program_texts.DOWNLOAD, HEARTH_SOURCE="hf://org/model", HEARTH_MARKER=tmp_path / "marker"
    )
    assert done == (0, "", "")


def test_a_mistake_is_one_line(tmp_path):
    (tmp_path / "huggingface_hub.py").write_text("")
    code, _, said = programs.run(
        program_texts.DOWNLOAD,
        HEARTH_SOURCE="hf://org/model",
        HEARTH_MARKER=tmp_path / "marker",
        PYTHONPATH=tmp_path,
    )
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith("hf://org/model: ")
    assert not (tmp_path / "marker").exists()
