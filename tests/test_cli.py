"""argv to exit status: what a person typed wrong is one line that says what to do."""

import io
from pathlib import Path

import pytest
import yaml

import hearth
from hearth import cli

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(capsys, monkeypatch):
    """Call it; status, output, lines of error."""
    monkeypatch.delenv("KUBECONFIG", raising=False)

    def call(*argv, **environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as end:
            cli.main(argv)
        said = capsys.readouterr()
        return end.value.code, said.out, said.err.splitlines()

    return call


def test_version_and_help(run):
    assert run("--version") == (0, f"hearth {hearth.__version__}\n", [])
    for verb in ((), ("local",), ("render",), ("crd",), ("run",)):
        status, output, errors = run(*verb, "--help")
        assert (status, errors) == (0, []) and output.startswith("usage: hearth")


def test_help_names_every_setting_with_its_default(run):
    _, output, _ = run("local", "--help")
    assert "--gateway-port N" in output and "Default: 8080" in " ".join(output.split())
    assert "--polling-interval DURATION" in output and "--images NAME=VALUE" in output


def test_render_prints_what_would_be_written(run):
    status, output, errors = run("render", "-f", str(EXAMPLES / "stub-keepalive.yaml"))
    kinds = [one["kind"] for one in yaml.safe_load_all(output)]
    assert (status, errors) == (0, []) and kinds[0] == "Deployment" and "ScaledObject" in kinds


def test_a_flag_and_a_variable_reach_what_is_rendered(run):
    example = str(EXAMPLES / "stub-keepalive.yaml")
    _, output, _ = run("render", "-f", example, "--release=mine", HEARTH_POLLING_INTERVAL="42s")
    assert "mine-gateway" in output and "pollingInterval: 42" in output


def test_render_prints_the_policy_that_the_chart_lets_hearth_write(run):
    example = str(EXAMPLES / "authentication.yaml")
    _, output, errors = run("render", "-f", example, "--scrape-namespaces=monitoring")
    policies = [one for one in yaml.safe_load_all(output) if one["kind"] == "NetworkPolicy"]
    assert errors == [] and [one["metadata"]["name"] for one in policies] == ["private-backend"]
    assert "monitoring" in output
    _, output, errors = run("render", "-f", example, "--backend-guard=off")
    assert errors == [] and "NetworkPolicy" not in output


def test_render_warns_of_what_works_but_not_as_meant(run):
    example = str(EXAMPLES / "authentication.yaml")
    status, output, errors = run("render", "-f", example, "--backend-guard=warn")
    assert status == 0 and "kind: Deployment" in output
    assert len(errors) == 1
    assert errors[0].startswith(f"hearth render: warning: {example}: LLMService default/private: ")


def test_render_goes_by_groups_and_the_default_namespace(run, tmp_path):
    example = str(EXAMPLES / "stub-keepalive.yaml")
    _, output, _ = run("render", "-f", example, "--default-namespace=lab")
    assert {one["metadata"]["namespace"] for one in yaml.safe_load_all(output)} == {"lab"}
    status, _, errors = run("render", "-f", example, HEARTH_GROUPS="serving.noctaya.io")
    assert status == 1 and "is switched off here" in errors[0]


def test_render_reads_what_is_piped_in(run, monkeypatch):
    text = (EXAMPLES / "stub-keepalive.yaml").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    status, output, errors = run("render", "-f", "-")
    assert (status, errors) == (0, []) and "kind: Deployment" in output


def test_ctrl_c_while_it_waits_for_a_pipe_is_no_traceback(run, monkeypatch):
    class Terminal(io.BytesIO):
        def readable(self):
            return True

        def read(self, *_):
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Terminal()))
    assert run("render", "-f", "-") == (130, "", [])


def test_nothing_to_read_from(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    assert run("local", "-f", "-") == (1, "", ["hearth local: -f -: nothing is piped in"])


def test_crd_prints_the_groups_that_are_on(run):
    status, output, _ = run("crd")
    assert status == 0 and len(list(yaml.safe_load_all(output))) == 4
    _, output, _ = run("crd", "--groups=serving.noctaya.io")
    groups = {one["spec"]["group"] for one in yaml.safe_load_all(output)}
    assert groups == {"serving.noctaya.io"}


def test_each_line_of_what_is_wrong_says_who_tells_it_and_where(run, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text("kind: LLMServic\n")
    status, output, errors = run("render", "-f", str(tmp_path))
    assert (status, output) == (1, "")
    for name in "ab":
        assert any(line.startswith(f"hearth render: {tmp_path}/{name}.yaml") for line in errors)
    assert all(line.startswith(f"hearth render: {tmp_path}/") for line in errors)


@pytest.mark.parametrize(
    ("argv", "status", "words"),
    [
        ((), 2, "COMMAND"),
        (("serve",), 2, "serve"),
        (("local", "--colour=red"), 2, "hearth local: there is no --colour here ("),
        (("local", "--gatewayport", "1"), 2, "; did you mean --gateway-port?"),
        (("local", "a.yaml"), 2, "hearth local: write -f before each file or folder: -f a.yaml"),
        (("render", "-f", "a.yaml", "b.yaml"), 2, "-f b.yaml"),
        (("crd", "a.yaml"), 2, "hearth crd: there is no a.yaml here"),
        (("local",), 1, "hearth local -f examples/"),
        (("local", "-f", "nowhere.yaml", "--gateway-port=x"), 2, "--gateway-port"),
        (
            ("local", "-f", ".", "--claims=ai/w=/nowhere"),
            2,
            "there is no folder /nowhere, which is given to claim ai/w",
        ),
        (("render",), 2, "-f"),
        (("render", "-f", "nowhere.yaml"), 1, "nowhere.yaml"),
        (("crd", "--groups"), 2, "--groups"),
        (("run", "--kubeconfig=nowhere"), 1, "nowhere"),
    ],
)
def test_a_wrong_call_is_one_line(run, argv, status, words):
    code, output, errors = run(*argv)
    assert (code, output, len(errors)) == (status, "", 1)
    assert errors[0].startswith("hearth") and words in errors[0]
