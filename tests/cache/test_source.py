"""Model URIs."""

import pytest

from hearth.cache import source
from hearth.cache.source import Hub, Source

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("hf://org/model", Source(hub=Hub.HUGGING_FACE, path="org/model")),
        ("huggingface://org/model", Source(hub=Hub.HUGGING_FACE, path="org/model")),
        ("HF://gpt2", Source(hub=Hub.HUGGING_FACE, path="gpt2")),
        ("hf://org/model:Q4_K_M", Source(hub=Hub.HUGGING_FACE, path="org/model:Q4_K_M")),
        ("modelscope://org/model", Source(hub=Hub.MODELSCOPE, path="org/model")),
        ("pvc://weights", Source(hub=Hub.PVC, path="/models", pvc="weights")),
        ("pvc://weights/", Source(hub=Hub.PVC, path="/models", pvc="weights")),
        ("pvc://weights/sub/dir", Source(hub=Hub.PVC, path="/models/sub/dir", pvc="weights")),
        ("pvc://weights/dir/", Source(hub=Hub.PVC, path="/models/dir", pvc="weights")),
        ("pvc://a.b/m.gguf", Source(hub=Hub.PVC, path="/models/m.gguf", pvc="a.b")),
    ],
)
def test_model_uris(uri: str, expected: Source):
    assert source.parse(uri) == expected


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("org/model", "names no scheme; write hf://<org>/<model>"),
        ("", "names no scheme"),
        ("s3://bucket/model", "s3:// is not supported; stage the weights on a claim"),
        ("gs://bucket/model", "gs:// is not supported; use hf://"),
        (f"oci://registry/repo@{DIGEST}", "oci:// is not built yet; use hf://"),
        ("oci://registry/repo:tag", "names no digest; write oci://<registry>/<repository>@sha256:"),
        ("hf://", "without empty, . or .."),
        ("hf:///etc/passwd", "without empty, . or .."),
        ("hf://org//model", "without empty, . or .."),
        ("hf://org/../model", "without empty, . or .."),
        ("pvc://weights/../other", "without empty, . or .."),
        ("pvc://weights/./x", "without empty, . or .."),
        ("pvc://weights//x", "without empty, . or .."),
        ("hf://--trust-remote-code", "may not begin with - nor hold spaces"),
        ("hf://org/a b", "may not begin with - nor hold spaces"),
        ("hf://org/a\x00b", "may not begin with - nor hold spaces"),
        ("pvc://w/a\\b", "may not begin with - nor hold spaces"),
        ("pvc://", "names no claim; write pvc://<claim>[/<path>]"),
        ("pvc:///models", "names no claim"),
        ("pvc://Weights", "names no claim"),
        ("pvc://..", "names no claim"),
        ("pvc://" + "a" * 254, "names no claim"),
    ],
)
def test_errors_of_model_uris_say_what_to_write(uri: str, message: str):
    with pytest.raises(source.BadSource) as error:
        source.parse(uri)
    assert message in str(error.value)
