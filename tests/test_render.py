"""`hearth render`: every object of every service, or what is wrong, one line a problem."""

import pytest
import yaml

from hearth import render
from hearth.cache import program_texts
from hearth.reconcile.render.release import Release

RUNTIME = """\
apiVersion: serving.hearth.dev/v1alpha1
kind: InferenceRuntime
metadata: {name: stub}
spec: {vendor: cpu, container: {image: engine, args: [serve]}}
"""
SERVICE = """\
apiVersion: serving.hearth.dev/v1alpha1
kind: LLMService
metadata: {name: chat, namespace: ai}
spec:
  model: {source: {uri: "hf://a/b"}}
  runtime: {name: stub}
  cache: {strategy: None}
"""


def rendered(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return list(yaml.safe_load_all(render.text([str(folder)], release=Release(), piped=bytes)))


def problems(folder, **files):
    with pytest.raises(render.CannotRender) as error:
        rendered(folder, **files)
    return str(error.value).splitlines()


def test_objects_come_in_write_order_from_all_files_of_a_folder(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "runtime.yml").write_text(RUNTIME)
    found = rendered(tmp_path, service=SERVICE)
    assert [(one["kind"], one["metadata"]["name"]) for one in found] == [
        ("Deployment", "chat"), ("Service", "chat-backend"), ("Service", "chat"),
        ("ScaledObject", "chat"), ("Service", "hearth"),
    ]  # fmt: skip
    assert {one["metadata"]["namespace"] for one in found} == {"ai"}


def test_a_program_reads_as_it_runs(tmp_path):
    """A text of several lines stands there line by line; no value is an alias of another."""
    filled = SERVICE.replace("{strategy: None}", "{prewarm: true}")
    (tmp_path / "a.yaml").write_text(f"{RUNTIME}---\n{filled}")
    text = render.text([str(tmp_path)], release=Release(), piped=bytes)
    for program in (program_texts.DOWNLOAD, program_texts.WAIT):
        assert {line for line in program.splitlines() if line} <= {
            line[10:] for line in text.splitlines()
        }
    job = next(one for one in yaml.safe_load_all(text) if one["kind"] == "Job")
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["python3", "-c", program_texts.DOWNLOAD]
    assert "&id" not in text


def test_field_case_103_what_a_runtime_says_of_pods_is_shown(tmp_path):
    said = "metadata: {name: stub, annotations: {hearth.dev/pod-%s: nvidia}}"
    plain = "metadata: {name: stub}"
    deployment = rendered(tmp_path, a=RUNTIME.replace(plain, said % "runtime-class"), b=SERVICE)[0]
    assert deployment["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"
    [problem] = problems(tmp_path, a=RUNTIME.replace(plain, said % "runtimeclass"), b=SERVICE)
    where = f"{tmp_path / 'a.yaml'}:3: InferenceRuntime stub: metadata.annotations"
    assert problem.startswith(f"{where}[hearth.dev/pod-runtimeclass]: ")
    assert "there is no such option" in problem


def test_each_namespace_has_one_shared_endpoint(tmp_path):
    other = SERVICE.replace("name: chat", "name: other")
    third = SERVICE.replace("namespace: ai", "namespace: lab")
    found = rendered(tmp_path, a=RUNTIME, b=SERVICE, c=other, d=third)
    shared = [one for one in found if one["metadata"]["name"] == "hearth"]
    assert [one["metadata"]["namespace"] for one in shared] == ["ai", "lab"]


def test_every_problem_of_every_file_is_told(tmp_path):
    bad = SERVICE.replace("cache: {strategy: None}", "cache: {strategy: Warm}")
    first, second, third = problems(
        tmp_path, a=RUNTIME, b=bad, c=SERVICE.replace("strategy: None", "size: big"), d=RUNTIME
    )
    assert f"{tmp_path}/b.yaml:7" in first and "spec.cache.strategy" in first
    assert f"{tmp_path}/c.yaml:7" in second and "spec.cache.size" in second
    assert f"{tmp_path}/d.yaml" in third and f"{tmp_path}/a.yaml" in third


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a": RUNTIME}, "there is no LLMService"),
        ({"a": SERVICE}, "/a.yaml: LLMService ai/chat: RuntimeResolution"),
        (
            {"a": RUNTIME, "b": SERVICE.replace("{strategy: None}", "{strategy: BakedImage}")},
            "spec.cache.strategy",
        ),
        (
            {"a": RUNTIME.replace("[serve]", '["{{ .Nothing }}"]'), "b": SERVICE},
            "/b.yaml: LLMService ai/chat: Render",
        ),
    ],
)
def test_what_cannot_be_rendered_is_one_line(tmp_path, files, words):
    (line,) = problems(tmp_path, **files)
    assert words in line


def test_every_service_that_is_refused_is_told(tmp_path):
    other = SERVICE.replace("name: chat,", "name: talk,")
    first, second = problems(tmp_path, a=SERVICE, b=other)
    assert f"{tmp_path}/a.yaml: LLMService ai/chat: " in first
    assert f"{tmp_path}/b.yaml: LLMService ai/talk: " in second


def test_of_two_groups_with_one_name_the_second_is_refused(tmp_path):
    noctaya = {"hearth.dev": "noctaya.io"}
    texts = [text.replace(*next(iter(noctaya.items()))) for text in (RUNTIME, SERVICE)]
    (line,) = problems(tmp_path, a=RUNTIME, b=SERVICE, c=texts[0], d=texts[1])
    assert "NameTaken" in line


def warned(folder, **files):
    """The objects, and the lines of warnings."""
    lines = []
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    text = render.text([str(folder)], release=Release(), piped=bytes, warn=lines.append)
    return list(yaml.safe_load_all(text)), lines


@pytest.mark.parametrize("group", ["serving.hearth.dev", "serving.noctaya.io"])
def test_what_works_but_maybe_not_as_meant_is_a_warning_with_file_and_object(tmp_path, group):
    service = SERVICE.replace("cache:", "endpoint: {maxQueue: 5}\n  cache:")
    objects, lines = warned(
        tmp_path, a=(RUNTIME + "---\n" + service).replace("serving.hearth.dev", group)
    )
    assert len(objects) == 5
    [line] = lines
    assert line.startswith(
        f"{tmp_path / 'a.yaml'}: LLMService ai/chat: spec.endpoint.maxQueue: 5 is less than"
    )


def test_an_object_of_another_kind_is_passed_over_with_a_warning(tmp_path):
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: ai}\n---\n"
    objects, lines = warned(tmp_path, a=namespace + RUNTIME, b=SERVICE)
    assert len(objects) == 5
    assert lines == [f"{tmp_path / 'a.yaml'}:2: Namespace ai: is passed over: {render.RENDERED}"]


def test_a_slip_of_the_kind_is_no_other_kind(tmp_path):
    [problem] = problems(tmp_path, a=RUNTIME, b=SERVICE.replace("LLMService", "LLMservice"))
    assert "did you mean LLMService?" in problem


def test_warnings_are_told_beside_what_is_refused(tmp_path):
    lines = []
    refused = SERVICE.replace("name: chat", "name: b").replace(
        "strategy: None", "strategy: BakedImage"
    )
    service = SERVICE.replace("cache:", "endpoint: {maxQueue: 5}\n  cache:")
    (tmp_path / "a.yaml").write_text(f"{RUNTIME}---\n{service}---\n{refused}")
    with pytest.raises(render.CannotRender, match="LLMService ai/b: Render: ") as error:
        render.text([str(tmp_path)], release=Release(), piped=bytes, warn=lines.append)
    assert len(str(error.value).splitlines()) == len(lines) == 1


def test_paths_that_hold_nothing(tmp_path):
    for path, words in ((tmp_path, "no .yaml file"), (tmp_path / "x.yaml", "no such file")):
        with pytest.raises(render.CannotRender, match=words):
            render.text([str(path)], release=Release(), piped=bytes)
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(render.CannotRender, match="cannot be read: it is not UTF-8 text"):
        render.text([str(tmp_path)], release=Release(), piped=bytes)


def test_what_an_editor_hides_is_not_a_manifest(tmp_path):
    (tmp_path / ".git").mkdir()
    for name in (".#chat.yaml", ".git/old.yaml"):
        (tmp_path / name).write_text("not: a manifest")
    assert rendered(tmp_path, a=RUNTIME, b=SERVICE)


def test_a_text_that_is_piped_in_is_read_like_a_file(tmp_path):
    (tmp_path / "runtime.yaml").write_text(RUNTIME)
    paths = ["-", str(tmp_path)]
    text = render.text(paths, release=Release(), piped=SERVICE.encode)
    assert next(yaml.safe_load_all(text))["kind"] == "Deployment"
    with pytest.raises(render.CannotRender, match=r"\nstdin:5: .*modell: is not a field"):
        render.text(paths, release=Release(), piped=SERVICE.replace("model:", "modell:").encode)
    with pytest.raises(render.CannotRender, match="stdin: cannot be read: it is not UTF-8 text"):
        render.text(paths, release=Release(), piped=lambda: b"\xff")


def test_objects_without_a_namespace_and_groups_that_are_off(tmp_path):
    (tmp_path / "a.yaml").write_text(RUNTIME)
    (tmp_path / "b.yaml").write_text(SERVICE.replace(", namespace: ai", ""))
    text = render.text([str(tmp_path)], release=Release(), namespace="lab", piped=bytes)
    assert {one["metadata"]["namespace"] for one in yaml.safe_load_all(text)} == {"lab"}
    with pytest.raises(render.CannotRender, match="is switched off here"):
        render.text([str(tmp_path)], release=Release(), groups=("serving.noctaya.io",), piped=bytes)
