"""The model name an engine answers to."""

import pytest

from hearth.reconcile.status import served_name


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], None),
        (["--model=m"], None),
        (["--served-model-name=chat"], "chat"),
        (["--served-model-name", "chat", "other", "--port=1"], "chat"),
        (["--served_model_name=chat"], "chat"),
        (["--alias", "chat"], "chat"),
        (["--alias=chat,other"], "chat"),
        (["-a", "chat"], "chat"),
        (["--served-model-name=a,b"], "a,b"),
        (["--served-model-name=a", "--served-model-name=b"], "b"),
        (["--served-model-name=a", "--served-model-name"], "a"),
        (["--served-model-name", "--port=1"], None),
        (["--served-model-name=$(NAME)"], None),
        (["--served-model-name="], None),
        (["--served-model-name= "], None),
        (["--served-model-names=x"], None),
    ],
)
def test_served_name(args: list[str], expected: str | None):
    assert served_name.read(args) == expected
