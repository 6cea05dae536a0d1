"""An engine that asks for a key of its own is told it, and nobody else passes."""

import aiohttp

from tests.lifecycle import harness
from tests.lifecycle.harness import runtime, service

KEYS = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "engine-of-chat"},
    "stringData": {"token": "sesame"},
}


async def test_field_case_130_nobody_gets_past_the_gateway_to_an_engine_with_a_key(tmp_path):
    keyed = runtime("stub", "--api-key=$(HEARTH_ENGINE_KEY)", "--load-time=100ms")
    said = {"hearth.dev/engine-key": "engine-of-{{ .Service.Name }}/token"}
    keyed["metadata"]["annotations"] = said
    theirs = {"Authorization": "Bearer theirs"}
    async with harness.running(tmp_path, KEYS, keyed, service("chat")) as hearth:
        # Cold, and warm; with a client's own key, and without one.
        assert await hearth.answer("chat", headers=theirs) == "one two three"
        assert await hearth.answer("chat") == "one two three"
        row = await hearth.until(lambda row: row["endpoints"], "chat")
        url = f"http://{row['endpoints'][0]}/v1/models"
        async with hearth.session.get(url, headers=theirs) as response:
            assert response.status == 401
        sesame = {"Authorization": "Bearer sesame"}
        async with aiohttp.ClientSession(headers=sesame) as own, own.get(url) as response:
            assert response.status == 200
