"""What Prometheus and the access log are told after a small history that is known."""

import json
from collections import Counter

import anyio
from prometheus_client import parser

from tests.lifecycle import harness
from tests.lifecycle.harness import Begun, cold_start, runtime, service


async def scrape(hearth):
    """Every sample as name and labels (those that are set) to value."""
    async with hearth.session.get(f"{hearth.admin}/metrics") as response:
        families = parser.text_string_to_metric_families(await response.text())
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()) if value)): sample.value
        for family in families
        for sample in family.samples
    }


async def test_one_outcome_a_request_and_no_series_of_what_is_gone(tmp_path):
    flags = ("--access-log", "true")
    async with harness.running(tmp_path, runtime("stub"), service("chat"), flags=flags) as hearth:
        hearth.write(
            "doomed.yaml",
            runtime("never", "--never-ready"),
            service("doomed", runtime="never", endpoint=cold_start(maxQueue=1)),
        )
        await hearth.phase("ScaledToZero", "doomed")
        await hearth.answer("chat")  # cold
        await hearth.answer("chat")
        async with hearth.chat("chat") as response:
            await response.read()
        async with hearth.chat("chat", headers={"x-stub-fault": "status:418"}) as response:
            assert response.status == 418
        async with hearth.chat("chat", stub={"fault": "reset:1"}) as response:
            await response.read()
        assert (await hearth.error("nobody"))[0] == 404
        async with hearth.session.post(f"{hearth.gateway}/v1/completions", data=b"{") as response:
            assert response.status == 400
        async with anyio.create_task_group() as tasks:
            held = Begun(tasks, hearth.error("doomed", stream=False))
            await hearth.until(lambda row: row["held"] == 1, "doomed")
            assert (await hearth.error("doomed"))[0] == 429
            samples = await scrape(hearth)
            assert samples["hearth_pending_requests", "default", "doomed"] == 1
            assert samples["hearth_held_requests", "default", "doomed"] == 1
            assert samples["hearth_requests_total", "default", "queue_full", "doomed", "4xx"] == 1
            held.scope.cancel()
        await hearth.until(lambda row: row["pending"] == 0, "doomed")

        samples = await scrape(hearth)
        ended = {
            ("default", "ok", "chat", "2xx"): 3,
            ("default", "upstream_status", "chat", "4xx"): 1,
            ("default", "upstream_error", "chat", "2xx"): 1,
            ("default", "queue_full", "doomed", "4xx"): 1,
            ("default", "client_cancelled", "doomed", "none"): 1,
            ("model_not_found", "4xx"): 1,
            ("invalid_request", "4xx"): 1,
        }
        assert counted(samples, "hearth_requests_total") == ended
        assert counted(samples, "hearth_rejections_total") == {
            ("default", "upstream_error", "chat"): 1,
            ("default", "queue_full", "doomed"): 1,
            ("model_not_found",): 1,
            ("invalid_request",): 1,
        }
        assert samples["hearth_activation_seconds_count", "default", "chat"] == 1
        assert samples["hearth_first_byte_seconds_count", "default", "chat"] == 5
        assert samples["hearth_request_seconds_count", "default", "chat"] == 5
        assert samples["hearth_in_flight_requests", "default", "chat"] == 0
        assert samples["hearth_endpoints", "default", "chat"] == 1
        assert samples["hearth_push_streams", "default", "chat"] == 1
        assert samples["hearth_pushes_total", "default", "chat"] >= 1
        assert samples["hearth_reconcile_seconds_count", "ok"] > 0

        (hearth.manifests / "doomed.yaml").unlink()
        await hearth.until(lambda row: row is None, "doomed")
        assert not [labels for labels in await scrape(hearth) if "doomed" in labels]
    assert Counter(map(labels_of, access_log(hearth))) == ended


def access_log(hearth):
    """Its lines; beside them are those for people."""
    return [json.loads(line) for line in hearth.lines if line.startswith("{")]


def labels_of(line):
    """Those that a request is counted under."""
    namespace, _, name = (line["service"] or "").partition("/")
    status = f"{line['status'] // 100}xx" if line["status"] else "none"
    return tuple(filter(None, (namespace, line["outcome"], name, status)))


def counted(samples, name):
    """One counter, by its labels."""
    return {tuple(labels): value for (found, *labels), value in samples.items() if found == name}
