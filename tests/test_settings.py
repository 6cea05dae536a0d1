"""Flags over environment over defaults; a wrong value is one line that names its setting."""

from pathlib import Path

import pytest

from hearth import settings
from hearth.settings import BadSettings, ClusterSettings, LocalSettings, Settings


def test_defaults():
    assert settings.read(Settings, {}, {}).gateway_port == 8080
    local = settings.read(LocalSettings, {}, {})
    assert (local.host, local.default_namespace) == ("localhost", "default")
    cluster = settings.read(ClusterSettings, {}, {})
    assert (cluster.error_detail, local.error_detail) == ("brief", "full")


def test_a_flag_beats_the_environment_and_that_beats_the_default():
    env = {"HEARTH_GATEWAY_PORT": "1", "HEARTH_ADMIN_PORT": "2", "OTHER": "3"}
    read = settings.read(Settings, {"gateway_port": ["9"]}, env)
    assert (read.gateway_port, read.admin_port, read.scaler_port) == (9, 2, 9090)


def test_field_case_130_a_policy_needs_a_pod_that_it_lets_through():
    def guard(**flags):
        said = {name: [text] for name, text in flags.items()}
        return settings.read(ClusterSettings, said, {}).to_release().backend_guard

    assert guard() == "warn"
    assert guard(backend_guard="policy", pod_name="hearth-1") == "policy"
    assert guard(backend_guard="policy") == "warn"
    assert guard(backend_guard="off") == "off"
    assert settings.read(LocalSettings, {}, {}).to_release().backend_guard == "off"


def test_lists_and_pairs(tmp_path):
    one, two = str(tmp_path), f"{tmp_path}/v=1"
    Path(two).mkdir()
    claims = [f"ai/w={one}", f"ai/v={two}"]
    read = settings.read(
        LocalSettings,
        {"files": ["a.yaml", "b"], "claims": claims, "devices": ["x.com/gpu=2"]},
        {"HEARTH_GROUPS": "serving.hearth.dev", "HEARTH_IMAGES": "a=b c\nd=e"},
    )
    assert [str(path) for path in read.files] == ["a.yaml", "b"]
    assert read.claims == {"ai/w": one, "ai/v": two} and read.devices == {"x.com/gpu": 2}
    assert read.groups == ("serving.hearth.dev",) and read.images == {"a": "b c", "d": "e"}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            {"gateway_port": ["http"]},
            "--gateway-port (or HEARTH_GATEWAY_PORT): must be a whole number, not 'http'",
        ),
        ({"gateway_port": ["70000"]}, "must be at most 65535, not 70000"),
        ({"polling_interval": ["15"]}, "'15' is not a duration; write for example 10s"),
        ({"polling_interval": ["0s"]}, "must be above zero"),
        ({"claims": ["weights"]}, "--claims: write NAME=VALUE, not 'weights'"),
        ({"claims": ["weights=/"]}, "write NAMESPACE/NAME=FOLDER, not 'weights=/'"),
        ({"claims": ["ai/w=/no/where"]}, "there is no folder /no/where, which is given to"),
        ({"devices": ["nvidia.com/gpu=two"]}, "--devices (or HEARTH_DEVICES)"),
        ({"cors_origins": ["a.org"]}, "--cors-origins (or HEARTH_CORS_ORIGINS): write * or"),
        ({"error_detail": ["none"]}, "must be 'brief' or 'full', not 'none'"),
        ({"log_level": ["loud"]}, "must be 'debug', 'info', 'warning' or 'error', not 'loud'"),
    ],
)
def test_wrong_values_name_the_setting(flags, words):
    with pytest.raises(BadSettings) as error:
        settings.read(LocalSettings, flags, {})
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_switch_is_true_or_false():
    with pytest.raises(BadSettings, match="must be true or false, not 'perhaps'"):
        settings.read(ClusterSettings, {"mark_loading": ["perhaps"]}, {})


@pytest.mark.parametrize(
    ("model", "first", "second"),
    [
        (LocalSettings, "gateway", "admin"),
        (LocalSettings, "gateway", "scaler"),
        (ClusterSettings, "scaler", "scaler-tls"),
    ],
)
def test_two_settings_that_name_one_port(model, first, second):
    flags = {f"{name.replace('-', '_')}_port": ["7000"] for name in (first, second)}
    with pytest.raises(BadSettings) as error:
        settings.read(model, flags, {})
    names = [f"--{n}-port (or HEARTH_{n.upper().replace('-', '_')}_PORT)" for n in (first, second)]
    assert str(error.value) == (
        f"{names[0]} and {names[1]} are both 7000; give each port a number of its own"
    )


def test_any_free_port_may_be_asked_for_more_than_once():
    read = settings.read(LocalSettings, {"gateway_port": ["0"], "admin_port": ["0"]}, {})
    assert read.gateway_port == read.admin_port == 0


def test_every_setting_is_described():
    for field in LocalSettings.model_fields.values():
        assert field.description and settings.metavar(field)
