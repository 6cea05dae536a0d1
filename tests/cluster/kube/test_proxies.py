"""The environment's proxy, by the rules that kubectl and other programs in Go follow."""

import pytest

from hearth.cluster.kube import proxies

PROXY = {"HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize(
    ("no_proxy", "url", "direct"),
    [
        ("", "https://10.96.0.1:443", False),
        ("10.96.0.0/12,.svc,.cluster.local", "https://10.96.0.1:443", True),
        ("10.96.0.0/12", "https://10.112.0.1:443", False),
        ("10.96.0.1/12", "https://10.100.0.1", True),
        ("10.96.0.1/32", "https://10.96.0.1", True),
        (" 10.0.0.0/8 , x", "https://10.96.0.1", True),
        ("10.96.0.1", "https://10.96.0.1", True),
        ("10.96.0.1:443", "https://10.96.0.1", True),
        ("10.96.0.1:6443", "https://10.96.0.1", False),
        ("10.96.0.0/99", "https://10.96.0.1", False),
        ("fd00::/8", "https://[fd00:1::1]:443", True),
        ("fd00::/8", "https://[fe80::1]:443", False),
        ("fd00::/8", "https://10.96.0.1", False),
        ("fd00::1", "https://[fd00::1]", True),
        ("[fd00::1]:443", "https://[fd00:0::1]", True),
        ("[fd00::1]:6443", "https://[fd00::1]", False),
        ("::ffff:10.96.0.1", "https://10.96.0.1", True),
        ("*", "https://10.96.0.1", True),
        ("svc", "https://kubernetes.default.svc", True),
        ("svc", "https://svc", True),
        ("svc", "https://mysvc", False),
        (".svc", "https://kubernetes.default.svc", True),
        (".svc", "https://svc", False),
        ("*.svc", "https://kubernetes.default.SVC.", True),
        ("*svc", "https://kubernetes.default.svc", False),
        ("api.example:6443", "https://api.example:6443", True),
        ("api.example:6443", "https://api.example", False),
        ("", "https://localhost:6443", True),
        ("", "https://127.0.0.1:6443", True),
        ("", "https://[::1]:6443", True),
        ("", "http://10.96.0.1", True),
    ],
)
def test_field_case_92_whom_no_proxy_excepts(no_proxy, url, direct):
    for name in ("NO_PROXY", "no_proxy"):
        assert (proxies.find(url, {**PROXY, name: no_proxy}) is None) is direct


@pytest.mark.parametrize(
    ("value", "url", "headers"),
    [
        ("http://proxy:3128", "http://proxy:3128", {}),
        ("proxy:3128", "http://proxy:3128", {}),
        ("https://proxy/", "https://proxy", {}),
        ("http://[fd00::1]:3128", "http://[fd00::1]:3128", {}),
        (
            "http://me:a%40b@proxy:1",
            "http://proxy:1",
            {"Proxy-Authorization": "Basic bWU6YUBi"},
        ),
    ],
)
def test_proxy_url_forms(value, url, headers):
    found = proxies.find("https://api", {"https_proxy": value})
    assert (found.url, found.headers) == (url, headers)
    assert "Basic" not in repr(found)


def test_the_upper_case_name_wins_as_in_go():
    environ = {"HTTPS_PROXY": "upper:1", "https_proxy": "lower:1"}
    assert proxies.find("https://api", environ).url == "http://upper:1"


@pytest.mark.parametrize("value", ["socks5://proxy:1080", "http://", "http://proxy:port"])
def test_a_proxy_that_cannot_be_used_says_where_it_stands(value):
    with pytest.raises(proxies.BadProxy, match=r"^HTTPS_PROXY "):
        proxies.find("https://api", {"HTTPS_PROXY": value})
