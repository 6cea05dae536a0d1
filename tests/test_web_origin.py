"""Which requests come from a web page of another site."""

import pytest

from hearth import web_origin

HOST = "127.0.0.1:8080"
PAGE = "https://page.example"


def asked(fields, *, method="POST", host=HOST, allowed=(), rebindable=False):
    return web_origin.is_cross_site(
        lambda name: fields.get(name, ""),
        method=method,
        host=host,
        allowed=allowed,
        rebindable=rebindable,
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"origin": PAGE},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "http://localhost:8080"},
        {"origin": "https://127.0.0.1"},
        {"origin": "file://127.0.0.1:8080"},
        {"origin": "chrome-extension://abc"},
        {"origin": "nonsense"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": " Cross-Site "},
        {"origin": "http://127.0.0.1:8080", "sec-fetch-site": "cross-site"},
        {"origin": PAGE, "sec-fetch-site": "same-site"},
        {"origin": PAGE, "sec-fetch-site": "none"},
        {"origin": PAGE, "x-forwarded-host": "other.example"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate",
         "sec-fetch-dest": "document"},
    ],
)  # fmt: skip
def test_field_case_97_a_page_of_another_site_is_told_from_the_rest(fields):
    assert asked(fields)
    assert not asked(fields, allowed=["*"])
    if origin := fields.get("origin"):
        assert not asked(fields, allowed=["https://x.example", origin])
        assert asked(fields, allowed=["https://x.example"])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"origin": "http://127.0.0.1:8080"},
        {"origin": "HTTP://127.0.0.1:8080"},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": PAGE, "sec-fetch-site": "same-origin"},
        {"origin": PAGE, "x-forwarded-host": "page.example, inner"},
    ],
)
def test_field_case_97_everybody_else_notices_nothing(fields):
    assert not asked(fields)
    assert not asked(fields, method="GET")


@pytest.mark.parametrize(
    ("origin", "host", "own"),
    [
        ("https://ui.example", "ui.example", True),
        ("https://ui.example", "ui.example:443", True),
        ("http://ui.example", "UI.example:80", True),
        ("https://ui.example", "ui.example:80", False),
        ("http://ui.example:8088", "ui.example", True),
        ("http://ui.example:8088", "ui.example:8080", False),
        ("https://ui.example.evil.example", "ui.example", False),
        ("https://evil.example", "", False),
        ("http://[::1]:8080", "[::1]:8080", True),
        ("http://[::2]:8080", "[::1]:8080", False),
    ],
)
def test_an_origin_of_the_servers_own(origin, host, own):
    assert asked({"origin": origin}, host=host) is not own


def test_field_case_97_a_name_that_others_may_own_proves_nothing():
    own = {"origin": "http://chat.ai", "sec-fetch-site": "same-origin"}
    assert not asked(own, host="chat.ai")
    assert asked(own, host="chat.ai", rebindable=True)
    assert not asked({}, host="chat.ai", rebindable=True)


def test_a_link_may_be_followed_but_nothing_may_be_sent_by_one():
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert not asked({**link, "sec-fetch-dest": "document"}, method="GET")
    assert asked({**link, "sec-fetch-dest": "iframe"}, method="GET")
    assert asked({**link, "sec-fetch-dest": "document"}, method="POST")


@pytest.mark.parametrize(
    ("host", "private"),
    [
        ("", True),
        ("127.0.0.1:8081", True),
        ("[::1]:8081", True),
        ("::1", True),
        ("localhost", True),
        ("models:8081", True),
        ("foo.localhost:8081", True),
        ("hearth-admin.hearth-system.svc", True),
        ("hearth-admin.hearth-system.svc.cluster.local.", True),
        ("host.docker.internal:8081", True),
        ("models.corp.example", True),
        ("HEARTH.models.corp.example.:8081", True),
        ("page.example", False),
        ("notmodels.corp.example", False),
        ("chat.ai", False),
        ("localhost.page.example", False),
        ("127.0.0.1.page.example:8081", False),
    ],
)
def test_names_that_no_foreign_dns_leads_here(host, private):
    assert web_origin.is_private_host(host, domains=["", "models.corp.example"]) is private
