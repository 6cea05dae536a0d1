"""Host and port as one text, and back."""

import pytest

from hearth import host_port

ROWS = [("10.0.0.1", "10.0.0.1:80"), ("pod", "pod:80"), ("fd00::1", "[fd00::1]:80")]


@pytest.mark.parametrize(("host", "text"), ROWS)
def test_field_case_93_an_address_of_ipv6_stands_in_brackets(host, text):
    assert host_port.authority(host, 80) == text
    assert host_port.split(text) == (host, 80)


@pytest.mark.parametrize("text", ["", "pod", "pod:", "pod:http", "pod:-1", "pod:²"])
def test_what_has_no_port_is_refused(text):
    with pytest.raises(ValueError, match="is not host:port"):
        host_port.split(text)
