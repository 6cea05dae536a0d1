"""uv is told what pip is told."""

import pip_settings
import pytest
from pip_settings import NotForUvError


def test_variables_count_more_than_files_and_the_command_more_than_all():
    listed = "\n".join([
        ":env:.index-url='https://variable/simple'",
        "WARNING: a=b",
        "download.index-url='https://another/command'",
        "global.cert='/file'",
        "global.index-url='https://file/simple'",
        "global.proxy=''",
        "install.cert='/install'",
        "install.extra-index-url='\\nhttps://a\\nhttps://b'",
    ])  # fmt: skip
    assert pip_settings.read(listed) == {
        "cert": "/install",
        "extra-index-url": "https://a\nhttps://b",
        "index-url": "https://variable/simple",
    }


PROXY = "http://host:3128"


@pytest.mark.parametrize(
    ("settings", "variables"),
    [
        ({}, {}),
        ({"index-url": "https://host/simple"}, {"UV_DEFAULT_INDEX": "https://host/simple"}),
        (
            {"extra-index-url": "https://a\nhttps://b"},
            {"UV_INDEX": "https://a https://b", "UV_INDEX_STRATEGY": "unsafe-best-match"},
        ),
        ({"no-index": "1"}, {"UV_NO_INDEX": "1"}),
        ({"no-index": "false"}, {}),
        ({"trusted-host": "a\nb:81"}, {"UV_INSECURE_HOST": "a b:81"}),
        ({"cert": "/bundle.pem"}, {"SSL_CERT_FILE": "/bundle.pem"}),
        ({"client-cert": "/me.pem"}, {"SSL_CLIENT_CERT": "/me.pem"}),
        ({"timeout": "15"}, {"UV_HTTP_TIMEOUT": "15"}),
        ({"default-timeout": "0.5"}, {"UV_HTTP_TIMEOUT": "1"}),
        ({"retries": "2"}, {"UV_HTTP_RETRIES": "2"}),
        ({"cache-dir": "/cache"}, {"UV_CACHE_DIR": "/cache/uv"}),
        ({"no-cache-dir": "1"}, {"UV_NO_CACHE": "1"}),
        ({"use-feature": "truststore"}, {"UV_SYSTEM_CERTS": "1"}),
        ({"keyring-provider": "auto"}, {}),
        ({"keyring-provider": "subprocess"}, {"UV_KEYRING_PROVIDER": "subprocess"}),
        ({"quiet": "1", "root-user-action": "ignore", "prefer-binary": "1"}, {}),
        *(
            (
                {"proxy": proxy},
                dict.fromkeys(
                    [
                        "HTTP_PROXY",
                        "HTTPS_PROXY",
                        "ALL_PROXY",
                        "http_proxy",
                        "https_proxy",
                        "all_proxy",
                    ],
                    PROXY,
                ),
            )
            for proxy in ("host:3128", PROXY)
        ),
    ],
)
def test_settings_that_uv_has_too(settings, variables):
    assert pip_settings.uv_environment(settings, {}) == variables


def test_folders_that_are_missing_are_left_out(tmp_path):
    places = f"/missing\n{tmp_path} https://host/wheels"
    found = pip_settings.uv_environment({"find-links": places}, {})
    assert found == {"UV_FIND_LINKS": f"{tmp_path},https://host/wheels"}
    assert pip_settings.uv_environment({"find-links": "/missing"}, {}) == {}


def test_a_folder_of_certificates(tmp_path):
    found = pip_settings.uv_environment({"cert": str(tmp_path)}, {})
    assert found == {"SSL_CERT_DIR": str(tmp_path)}


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_the_bundle_that_pip_finds_by_itself(name):
    environ = {name: "/bundle.pem"}
    assert pip_settings.uv_environment({}, environ)["SSL_CERT_FILE"] == "/bundle.pem"
    found = pip_settings.uv_environment({"cert": "/pip.pem"}, environ)
    assert found["SSL_CERT_FILE"] == "/pip.pem"


def test_what_uv_is_told_itself_counts_most():
    environ = {"UV_DEFAULT_INDEX": "https://mine", "HTTPS_PROXY": "http://old", "HOME": "/home"}
    settings = {"index-url": "https://pip", "proxy": PROXY}
    found = pip_settings.uv_environment(settings, environ)
    assert found["UV_DEFAULT_INDEX"] == "https://mine"
    assert (found["HTTPS_PROXY"], found["HOME"]) == (PROXY, "/home")


@pytest.mark.parametrize(
    "settings",
    [
        {"target": "/x"},
        {"only-binary": ":all:"},
        {"use-feature": "x"},
        {"keyring-provider": "import"},
    ],
)
def test_settings_that_uv_has_not(settings):
    with pytest.raises(NotForUvError, match=next(iter(settings))):
        pip_settings.uv_environment(settings, {})
