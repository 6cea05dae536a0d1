"""The page needs nothing from elsewhere, and its policy lets exactly its own parts run."""

import base64
import hashlib
import re

from hearth.admin import page


def test_the_policy_names_what_is_inline_and_nothing_else():
    body = b"<style>a{}</style><script>one()</script><script>two()</script>"
    sha = {
        text: base64.b64encode(hashlib.sha256(text).digest()).decode()
        for text in (b"a{}", b"one()", b"two()")
    }
    rules = dict(rule.split(" ", 1) for rule in page.policy(body).split("; "))
    assert rules == {
        "default-src": "'none'",
        "connect-src": "'self'",
        "img-src": "data:",
        "script-src": f"'sha256-{sha[b'one()']}' 'sha256-{sha[b'two()']}'",
        "style-src": f"'sha256-{sha[b'a{}']}'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


def test_the_page_loads_nothing_and_has_no_inline_handlers():
    text = page.load().body.decode()
    for reference in re.findall(r'(?:src|href)="([^"]*)"', text):
        assert reference.startswith(("data:", "hearth/", "metrics", "readyz")), reference
    assert not re.search(r"@import|url\(|innerHTML|\bon\w+=\"|style=\"", text)


def test_what_is_wrong_or_doubtful_of_a_service_is_shown():
    text = page.load().body.decode()
    for field in ("refusal", "failure", "delay", "warnings"):
        assert f"service.{field}" in text
        assert f"s.{field}" in text, "whether there is more to see with rights"


def test_each_phase_has_a_word_and_a_colour():
    text = page.load().body.decode()
    for phase in ("Pending", "Loading", "Ready", "ScaledToZero", "Degraded"):
        assert f".phase-{phase} {{ --phase:" in text
        assert re.search(rf'^  {phase}: \["., "?|^  {phase}: \["', text, re.MULTILINE)
