import sys

import pytest

from hearth.cluster.local.kubelet import programs
from hearth.cluster.local.kubelet.environment import CannotStart
from hearth.reconcile.render import release

IP = "127.77.0.5"
PORTS = [{"name": "metrics", "containerPort": 9}, {"name": "http", "containerPort": 8000}]


@pytest.fixture
def bin_dir(tmp_path):
    for name in ("vllm", "llama-server", "oras", "python3", "tool"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "plain").write_text("not a program")
    return tmp_path


def resolve(bin_dir, image, *, images=None, env=None, **container):
    program_map = programs.read_images(images or {}, {"PATH": str(bin_dir), **(env or {})})
    return programs.resolve({"image": image, "ports": PORTS, **container}, program_map, ip=IP)


LISTEN = ["--host", IP, "--port", "8000"]


@pytest.mark.parametrize(
    ("image", "args", "argv"),
    [
        ("vllm/vllm-openai:v0.11", ["org/m", "--x"], ["@vllm", "serve", "org/m", "--x", *LISTEN]),
        ("registry.example/ascend/vllm-ascend:v1", ["m"], ["@vllm", "serve", "m", *LISTEN]),
        ("reg:5000/vllm/vllm-openai", ["--a", "--model", "m", "--b"],
         ["@vllm", "serve", "m", "--a", "--b", *LISTEN]),
        ("vllm:1", ["--model=m", "--b"], ["@vllm", "serve", "m", "--b", *LISTEN]),
        ("vllm:1", ["m", "--host=$(POD_IP)", "--port", "1"],
         ["@vllm", "serve", "m", "--host=$(POD_IP)", "--port", "1"]),
        ("registry.example/ggml-org/llama.cpp:server-cuda", ["-m", "/models/x"],
         ["@llama-server", "-m", "/models/x", *LISTEN]),
        ("localhost/llama-server:1", ["--port", "9"],
         ["@llama-server", "--port", "9", "--host", IP]),
        (release.ORAS_IMAGE, ["pull", "r/m"], ["@oras", "pull", "r/m"]),
        ("mirror.example/oras-project/oras@sha256:" + "0" * 64, ["pull"], ["@oras", "pull"]),
        ("mirror.example/oras", ["pull"], ["@oras", "pull"]),
        ("hearth/hearth:latest", ["stub"], [sys.executable, "-m", "hearth", "stub"]),
        ("registry.example/team/hearth:1.0", ["stub"], [sys.executable, "-m", "hearth", "stub"]),
        ("localhost/hearth", [], [sys.executable, "-m", "hearth"]),
    ],
)  # fmt: skip
def test_built_in_images(bin_dir, image, args, argv):
    expected = [str(bin_dir / word[1:]) if word.startswith("@") else word for word in argv]
    assert resolve(bin_dir, image, args=args) == expected


def test_image_setting_comes_before_built_in_images(bin_dir):
    images = {"*/vllm*": "tool run --at '{ip}:{port}'", "vllm*": "never"}
    assert resolve(bin_dir, "x/vllm:1", images=images, args=["m"]) == [
        str(bin_dir / "tool"), "run", "--at", f"{IP}:8000", "m",
    ]  # fmt: skip


def test_image_setting_to_a_known_program_gets_host_and_port(bin_dir):
    images = {"my/engine*": f"{bin_dir}/llama-server -m x"}
    assert resolve(bin_dir, "my/engine:1", images=images) == [
        str(bin_dir / "llama-server"), "-m", "x", *LISTEN,
    ]  # fmt: skip


def test_program_path_from_a_variable(bin_dir, tmp_path):
    env = {"LLAMA_SERVER": str(bin_dir / "llama-server"), "PATH": "/nowhere"}
    assert resolve(tmp_path, "llama-server:1", env=env)[0] == str(bin_dir / "llama-server")


@pytest.mark.parametrize(
    ("image", "command", "argv"),
    [
        # A program that is here is run as it is written.
        ("any/thing:1", ["/bin/sh", "-c", "true"], ["/bin/sh", "-c", "true"]),
        ("vllm:1", ["/bin/sh", "-c", "true"], ["/bin/sh", "-c", "true"]),
        ("any/thing:1", ["tool", "x"], ["@tool", "x"]),
        # One beside the mapped program comes before any other of that name.
        ("vllm:1", ["python3", "-c", "1"], ["@python3", "-c", "1"]),
        # The same program at another program_map: the rest of the command stays.
        ("llama-server:1", ["/app/llama-server", "-c", "1"], ["@llama-server", "-c", "1", *LISTEN]),
        ("vllm:1", ["/opt/bin/vllm", "serve", "m"], ["@vllm", "serve", "m", *LISTEN]),
        # Another program that is not here gives way to the mapped one.
        ("vllm:1", ["/entrypoint.sh", "m"], ["@vllm", "serve", *LISTEN]),
    ],
)
def test_command_precedence(bin_dir, image, command, argv):
    expected = [str(bin_dir / word[1:]) if word.startswith("@") else word for word in argv]
    assert resolve(bin_dir, image, command=command) == expected


def test_python_falls_back_to_hearths_own(tmp_path):
    found = resolve(tmp_path, "any:1", command=["python3", "-V"])
    assert found[0].rpartition("/")[0] == sys.executable.rpartition("/")[0]


@pytest.mark.parametrize(
    ("container", "reason", "hint"),
    [
        ({"image": ""}, "InvalidImageName", "invalid reference format"),
        ({"image": "Upper/Case:1"}, "InvalidImageName", "invalid reference format"),
        ({"image": "un known"}, "InvalidImageName", "invalid reference format"),
        ({"image": "sglang:1"}, "ErrImagePull", "--images 'sglang:1=COMMAND'"),
        ({"image": "sglang:1", "imagePullPolicy": "Never"}, "ErrImageNeverPull", "--images"),
        ({"image": "sglang:1", "command": ["/app/run"]}, "CreateContainerError", "/app/run"),
        ({"image": "sglang:1", "command": ["./tool"]}, "CreateContainerError", "./tool"),
        ({"image": "gone:1"}, "CreateContainerError", "correct the command of --images"),
    ],
)
def test_missing_program_message(bin_dir, container, reason, hint):
    with pytest.raises(CannotStart) as caught:
        resolve(bin_dir, **container, images={"gone*": "no-such-program"})
    assert caught.value.reason == reason
    assert hint in caught.value.message


@pytest.mark.parametrize(
    ("image", "variable"),
    [("vllm:1", "VLLM"), ("llama-server:1", "LLAMA_SERVER"), ("ghcr.io/x/oras:v1", "ORAS")],
)
def test_missing_engine_message(tmp_path, image, variable):
    with pytest.raises(CannotStart, match=f"set {variable} to the path") as caught:
        resolve(tmp_path, image)
    assert caught.value.reason == "CreateContainerError"


@pytest.mark.parametrize(("line", "message"), [("a 'b", "not closed"), (" ", "is empty")])
def test_invalid_image_setting(line, message):
    with pytest.raises(ValueError, match=message):
        programs.read_images({"x": line}, {})


def test_file_without_execute_permission(bin_dir):
    with pytest.raises(CannotStart):
        resolve(bin_dir, "any:1", command=[str(bin_dir / "plain")])
