"""Model URIs."""

import pytest

from hearth.cache import source
from hearth.cache.source import Hub, Source

DIGEST = "sha256:" + "0" * 64


@pytest.mark.reference("spec.model.source.uri")
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
    "reference",
    [
        f"registry/repo@{DIGEST}",
        f"registry.example.com:5000/team/models/chat_1.b-c@{DIGEST}",
        f"1.2.3.4/x@{DIGEST}",
    ],
)
def test_a_model_of_a_registry_lies_in_the_folder_of_its_digest(reference: str):
    path = "/cache/oci/sha256-" + "0" * 64
    expected = Source(hub=Hub.OCI, path=path, reference=reference)
    assert source.parse(f"oci://{reference}") == source.parse(f"OCI://{reference}") == expected


@pytest.mark.parametrize(
    ("uri", "spelling"),
    [
        ("huggingface://org/model", "hf://org/model"),
        ("HF://org/model", "hf://org/model"),
        ("modelscope://org/model", "modelscope://org/model"),
        (f"oci://registry/repo@{DIGEST}", f"oci://registry/repo@{DIGEST}"),
    ],
)
def test_a_source_has_one_spelling(uri: str, spelling: str):
    assert source.parse(uri).uri == spelling


def test_a_tag_is_told_once():
    with pytest.raises(source.BadSource) as error:
        source.parse("oci://registry/repo:tag")
    assert str(error.value).count("oci://<") == 1


@pytest.mark.reference("spec.model.source.uri")
@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("org/model", "names no scheme; write hf://<org>/<model>"),
        ("", "names no scheme"),
        ("s3://bucket/model", "s3:// is not supported; stage the weights on a claim"),
        ("gs://bucket/model", "gs:// is not supported; use hf://"),
        ("oci://registry/repo:tag", "does not name one image by its digest; write oci://<regis"),
        (f"oci://registry/repo:tag@{DIGEST}", "without a tag"),
        (f"oci://{DIGEST}", "does not name one image"),
        (f"oci://repo@{DIGEST}", "does not name one image"),
        (f"oci://registry/Repo@{DIGEST}", "in lower case"),
        (f"oci://registry/../repo@{DIGEST}", "does not name one image"),
        (f"oci://registry//repo@{DIGEST}", "does not name one image"),
        (f"oci://registry:port/repo@{DIGEST}", "does not name one image"),
        (f"oci://registry/repo@{DIGEST[:-1]}", "64 hexadecimal digits"),
        (f"oci://registry/repo@{DIGEST.replace('0', 'A')}", "in lower case"),
        (f"oci://user:secret@registry/repo@{DIGEST}", "does not name one image"),
        (f"oci://registry/repo@{DIGEST}\n", "does not name one image"),
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
