"""The engine's numbers as Prometheus reads them."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hearth.stub import vllm_metrics


def scrape(metrics):
    return {
        (sample.name, sample.labels.get("le") or sample.labels.get("finished_reason")): sample.value
        for family in text_string_to_metric_families(metrics.render())
        for sample in family.samples
    }


def test_a_request_waits_runs_and_ends():
    metrics = vllm_metrics.EngineMetrics("m", slots=4)
    with metrics.request(prompt_tokens=7) as request:
        assert scrape(metrics)["vllm:num_requests_waiting", None] == 1
        request.runs()
        seen = scrape(metrics)
        assert seen["vllm:num_requests_waiting", None] == 0
        assert seen["vllm:num_requests_running", None] == 1
        assert seen["vllm:kv_cache_usage_perc", None] == 0.25
    seen = scrape(metrics)
    assert seen["vllm:num_requests_running", None] == 0
    assert seen["vllm:prompt_tokens_total", None] == 7
    assert seen["vllm:e2e_request_latency_seconds_count", None] == 1


def test_one_that_is_cut_off_while_it_waits_is_an_abort():
    metrics = vllm_metrics.EngineMetrics("m", slots=None)
    with pytest.raises(KeyError), metrics.request(prompt_tokens=1):
        raise KeyError
    seen = scrape(metrics)
    assert seen["vllm:num_requests_waiting", None] == 0
    assert seen["vllm:request_success_total", "abort"] == 1


def test_histograms_are_cumulative_and_a_bound_counts_as_within():
    metrics = vllm_metrics.EngineMetrics("m", slots=None)
    for seconds in (0.001, 0.003, 9999.0):
        metrics.first_token_s.observe(seconds)
    seen = scrape(metrics)
    name = "vllm:time_to_first_token_seconds"
    assert [seen[f"{name}_bucket", le] for le in ("0.001", "0.005", "2560.0", "+Inf")] == [
        1,
        2,
        2,
        3,
    ]
    assert (seen[f"{name}_count", None], seen[f"{name}_sum", None]) == (3, 9999.004)


def test_any_model_name_is_a_legal_label():
    name = 'a"b\\c\nd'
    [family, *_] = text_string_to_metric_families(
        vllm_metrics.EngineMetrics(name, slots=None).render()
    )
    assert family.samples[0].labels == {"engine": "0", "model_name": name}
