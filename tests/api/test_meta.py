"""Durations, quantities and field paths, as Go and Kubernetes spell them."""

import datetime
import time
from decimal import Decimal

import pytest
from pydantic import ValidationError

from hearth.api import meta
from hearth.api.meta import Duration, Metadata, Model, Quantity, ServiceKey


@pytest.mark.reference("text.durations")
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0), ("0s", 0), ("10s", 10), ("2m", 120), ("1h30m", 5400), ("500ms", 0.5),
        ("1.5s", 1.5), (".5h", 1800), ("5.m", 300), ("+5m", 300), ("-1s", -1), ("3us", 3e-6),
        ("3µs", 3e-6), ("1ns", 1e-9), ("59m59.9s100ms", 3600), ("1m0.1s", 60.1),
    ],
)  # fmt: skip
def test_durations(text, seconds):
    assert Duration.parse(text) == seconds


@pytest.mark.reference("text.durations")
@pytest.mark.parametrize(
    "text", ["", "10", "1d", "1w", "5 m", "m", "1e3s", "10s\n", "--1s", "PT5M", "9999999999h"]
)
def test_what_go_does_not_read_is_no_duration(text):
    with pytest.raises(ValueError, match="duration"):
        Duration.parse(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("90s", "90s"), ("120s", "2m"), ("60m", "1h"), ("0", "0s"), ("1500ms", "1.5s")],
)
def test_durations_are_shown_shortest(text, shown):
    assert str(Duration.parse(text)) == shown
    assert Duration.parse(shown) == Duration.parse(text)


@pytest.mark.reference("text.quantities")
@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("8", 8), ("500m", "0.5"), ("32Gi", 32 * 2**30), ("1k", 1000), ("1M", 10**6),
        ("2E", 2 * 10**18), ("2E3", 2000), ("2e-3", "0.002"), (".5", "0.5"), ("5.", 5),
        ("7n", "7e-9"), ("7u", "7e-6"), ("+1", 1), ("1Ki", 1024),
    ],
)  # fmt: skip
def test_quantities(text, amount):
    assert Quantity(text).amount == Decimal(amount)


@pytest.mark.parametrize("text", ["", "-1", "1 Gi", "1gi", "Gi", "1e", "1e999", "8\n", "0x8"])
def test_what_kubernetes_does_not_read_is_no_quantity(text):
    with pytest.raises(ValueError, match="quantity"):
        _ = Quantity(text).amount


class _Amounts(Model):
    size: Quantity | None = None
    wait: Duration = Duration(1)


def test_a_quantity_may_be_a_whole_number_and_keeps_its_spelling():
    assert _Amounts.model_validate({"size": 8}).size == "8"
    assert _Amounts.model_validate({"size": "1000m"}).size == "1000m"


@pytest.mark.parametrize("body", [{"size": 0.5}, {"size": True}, {"size": -1}, {"wait": 5}])
def test_what_the_api_server_refuses_is_refused(body):
    with pytest.raises(ValidationError):
        _Amounts.model_validate(body)


def test_a_model_may_be_made_in_code_by_its_own_names():
    assert _Amounts(wait=Duration(2)).wait == 2
    assert _Amounts(wait=Duration(2)).model_dump(exclude_unset=True) == {"wait": "2s"}


def test_null_means_absent():
    amounts = _Amounts.model_validate({"size": None, "wait": None})
    assert amounts == _Amounts()
    assert amounts.manifest() == {}


def test_metadata_keeps_what_it_does_not_know():
    metadata = Metadata.model_validate({"name": "a", "labels": None, "finalizers": ["x"]})
    assert metadata.labels == {}
    assert metadata.manifest() == {"name": "a", "finalizers": ["x"]}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("spec", "scaling", "min"), "spec.scaling.min"),
        (("spec", "env", 2, "name"), "spec.env[2].name"),
        (("metadata", "annotations", "hearth.dev/x"), "metadata.annotations[hearth.dev/x]"),
    ],
)
def test_field_paths_are_spelled_as_people_write_them(path, text):
    assert meta.format_path(path) == text


def test_keys_are_spelled_as_kubectl_does():
    assert str(ServiceKey("ai", "chat")) == "ai/chat"
    assert meta.key_of({"metadata": {"name": "x"}}) == ServiceKey("", "x")


def test_times_are_utc_and_whole_seconds():
    cet = datetime.timezone(datetime.timedelta(hours=1))
    moment = datetime.datetime(2026, 1, 1, 13, 0, 0, 999_999, tzinfo=cet)
    assert meta.rfc3339(moment) == "2026-01-01T12:00:00Z"


@pytest.mark.parametrize(
    ("wall_s", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000000Z"),
        (1_700_000_000.25, "2023-11-14T22:13:20.250000Z"),
        (1_700_000_000.000001, "2023-11-14T22:13:20.000001Z"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_times_have_six_digits_and_are_utc_wherever_we_run(wall_s, text, zone, monkeypatch):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert meta.rfc3339_micro(wall_s) == text
    finally:
        monkeypatch.undo()
        time.tzset()


def test_times_are_read_as_unix_seconds():
    assert meta.unix_s("1970-01-01T00:01:00Z") == 60
    assert meta.unix_s("1970-01-01T01:01:00.500000+01:00") == 60.5
    assert meta.rfc3339(60.9) == "1970-01-01T00:01:00Z"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(10, "10s"), (160, "2m40s"), (300, "5m0s"), (3661, "1h1m1s"), (0.5, "500ms"), (0, "0s")],
)
def test_durations_are_printed_as_go_does(seconds, text):
    assert meta.go_duration(seconds) == text


def test_a_condition_is_found_by_its_type_and_is_true_where_it_says_so():
    ready = {"type": "Ready", "status": "True"}
    pod = {"status": {"conditions": [{"type": "Initialized", "status": "False"}, ready]}}
    assert meta.find_condition(pod, "Ready") == ready
    assert meta.is_condition_true(pod, "Ready")
    assert not meta.is_condition_true(pod, "Initialized")
    for bare in ({}, {"status": None}, {"status": {"conditions": None}}, pod):
        assert meta.find_condition(bare, "Other") == {}
        assert not meta.is_condition_true(bare, "Other")


def test_a_condition_keeps_its_time_until_its_status_changes():
    before = {"type": "Ready", "status": "True", "lastTransitionTime": "old"}
    assert meta.transition_time(before, "True", now="new") == "old"
    assert meta.transition_time(before, "False", now="new") == "new"
    assert meta.transition_time({}, "True", now="new") == "new"


def test_times_of_log_lines_have_three_digits():
    assert meta.rfc3339_milli(1796122678.9994) == "2026-12-01T10:57:58.999Z"
