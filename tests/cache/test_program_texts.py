import ast

import pytest

from hearth.cache import program_texts

TEXTS = {
    "download": program_texts.DOWNLOAD,
    "promote": program_texts.PROMOTE,
    "wait": program_texts.WAIT,
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_program_is_python_of_the_oldest_image(name):
    tree = ast.parse(TEXTS[name], feature_version=(3, 8))
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        (node.module or "").partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
    }
    assert "hearth" not in imported


@pytest.mark.parametrize("name", TEXTS)
def test_a_program_is_small_enough_to_be_in_every_manifest(name):
    assert len(TEXTS[name].encode()) < 16_000


@pytest.mark.parametrize("name", TEXTS)
def test_a_program_comes_to_its_process_as_it_is(name):
    """Kubernetes reads `$(NAME)` and `$$` in commands; `hearth local` puts folders for volumes."""
    assert "$" not in TEXTS[name]
    assert [path for path in ("/cache", "/models", "/staging") if path in TEXTS[name]] == []
