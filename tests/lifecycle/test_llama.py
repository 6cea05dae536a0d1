"""A real engine with a real model: cold to tokens to zero, with the example as it is."""

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import require
from tests.lifecycle import harness
from tests.lifecycle.harness import Hearth

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama.yaml"


@pytest.fixture
def llama():
    """The program, and a file with weights."""
    server = shutil.which(os.environ.get("LLAMA_SERVER", "llama-server"))
    model = Path(os.environ.get("LLAMA_MODEL", "nothing"))
    how = "set LLAMA_SERVER to llama.cpp's server and LLAMA_MODEL to a GGUF file"
    require("llama", server is not None and model.is_file(), how)
    return server, model


async def test_a_real_model_wakes_speaks_and_sleeps(tmp_path, llama):
    server, model = llama
    hearth = Hearth(tmp_path)
    text = EXAMPLE.read_text()
    text = text.replace("gemma-3-270m-q4_k_m.gguf", model.name)
    text = text.replace("scaleDownStabilization: 30s", "scaleDownStabilization: 1s")
    (hearth.manifests / "llama.yaml").write_text(text)
    await hearth.start(f"--claims=default/models={model.parent}", env={"LLAMA_SERVER": server})
    try:
        asked = {"model": "gemma", "prompt": "The fire in the hearth", "max_tokens": 8}
        url = f"{hearth.gateway}/v1/completions"
        async with hearth.session.post(url, json=asked | {"stream": True}) as response:
            raw = await response.read()
        assert raw.startswith(b": heartbeat\n") and raw.endswith(harness.DONE)
        said = "".join(event["choices"][0]["text"] for event in harness.events(raw))
        assert said.strip()
        async with hearth.session.post(url, json=asked | {"temperature": 0}) as response:
            whole = await response.json()
        assert response.status == 200 and whole["usage"]["completion_tokens"] == 8
        await hearth.asleep("gemma")
    finally:
        assert await hearth.stop() == 0
    assert hearth.engines() == [] and "Traceback" not in hearth.errors
