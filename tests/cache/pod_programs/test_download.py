"""What fetches weights, as a process, with the libraries that images have, from loopback."""

import fcntl
import importlib.util
import json
import os
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
import watchfiles

from hearth.cache import program_texts
from tests import hanging
from tests.cache.pod_programs import hub, programs
from tests.conftest import require

SCHEMES = ("hf", "modelscope")
FIRST, SECOND = (name for name in hub.WEIGHTS if name.startswith("model-"))
SIZE = sum(map(len, hub.WEIGHTS.values()))


@pytest.fixture(params=SCHEMES)
def scheme(request):
    return request.param


@pytest.fixture(autouse=True)
def _libraries():
    found = all(map(importlib.util.find_spec, ("huggingface_hub", "modelscope")))
    require("hubs", found, "make .venv/installed-dev")


@pytest.fixture
async def served():
    async with hub.serve() as one:
        yield one


class Cache:
    """A cache that is empty at first, and the environment of the programs that fill it."""

    def __init__(self, folder, scheme, served) -> None:
        self.folder = folder / "cache"
        self.marker = self.folder / ".hearth/ready/0123456789abcdef.json"
        self.link = self.folder / ".hearth/models/0123456789abcdef"
        url = getattr(served, "url", served)
        self.env = {
            "HEARTH_SOURCE": f"{scheme}://{hub.MODEL}",
            "HEARTH_MARKER": self.marker,
            "HEARTH_RETRY_PAUSE_S": "0.01",
            "HF_HOME": self.folder / "hf",
            "MODELSCOPE_CACHE": self.folder / "modelscope",
            "HF_ENDPOINT": url,
            "MODELSCOPE_ENDPOINT": url,
            # The library tries again itself, with pauses of seconds.
            "MODELSCOPE_API_MAX_RETRIES": "1",
            "MODELSCOPE_REPO_TREE_PAGE_MAX_ATTEMPTS": "1",
            "MODELSCOPE_DOWNLOAD_MAX_RETRIES": "0",
            "HOME": folder / "nowhere",
        }

    async def fill(self, text=program_texts.DOWNLOAD, **more):
        return await programs.run_beside(text, **self.env | more)

    def start(self, **more):
        return programs.start(program_texts.DOWNLOAD, **self.env | more)

    def files(self, suffix=""):
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return [path for path in found if path.name.endswith(suffix)]

    def holds(self, content) -> bool:
        return any(path.read_bytes() == content for path in self.files())

    async def until_it_holds(self, *contents):
        """Watch until files with these bytes are there, with the names that they keep."""
        self.folder.mkdir(exist_ok=True)
        with hanging.guard():
            async for _ in watchfiles.awatch(self.folder, yield_on_timeout=True, rust_timeout=100):
                whole = [path for path in self.files() if not path.name.endswith(".incomplete")]
                if {path.read_bytes() for path in whole} >= set(contents):
                    return

    async def until_it_says(self, child, words):
        """Read its lines up to one with these words."""
        said = ""
        while words not in said:
            said = await anyio.to_thread.run_sync(child.stdout.readline)
            assert said, child.communicate()


def hold(stack, path):
    """As one who died on another node may: on shared storage its lock can stay."""
    fcntl.flock(stack.enter_context(path.open("w")), fcntl.LOCK_EX)


@pytest.fixture
def cache(tmp_path, scheme, served):
    return Cache(tmp_path, scheme, served)


async def test_a_name_that_no_model_can_have_is_not_asked_for_again(cache, scheme):
    code, said, error = await cache.fill(HEARTH_SOURCE=f"{scheme}://org/model:Q4_K_M")
    assert (code, error.count("\n")) == (1, 1) and "tries again" not in said
    assert {"hf": "can have no model of that name", "modelscope": "404"}[scheme] in error
    assert not cache.marker.exists()


async def test_a_cache_is_filled(cache, served, scheme):
    code, said, errors = await cache.fill(HEARTH_MODEL_LINK=cache.link)
    assert (code, errors) == (0, "")
    assert said.splitlines()[-1].endswith(f"is whole: 4 files, {SIZE} bytes")
    marker = json.loads(cache.marker.read_text())
    assert marker == {
        "source": f"{scheme}://{hub.MODEL}",
        "revision": hub.COMMIT if scheme == "hf" else "master",
        "files": 4,
        "bytes": SIZE,
    }
    assert not os.path.isabs(os.readlink(cache.link))
    for name, content in hub.WEIGHTS.items():
        assert (cache.link / name).read_bytes() == content
    assert served.sent == {name: len(content) for name, content in hub.WEIGHTS.items()}

    served.requests.clear()
    assert await cache.fill() == (0, "", "")
    assert served.requests == []


async def test_what_an_engine_finds_without_the_hub(cache, served, scheme):
    """The library itself, offline, by the model's name alone."""
    assert (await cache.fill())[0] == 0
    served.requests.clear()
    library = "huggingface_hub" if scheme == "hf" else "modelscope"
    find = f"import {library} as x; print(x.snapshot_download('org/model', local_files_only=True))"
    code, said, errors = await programs.run_beside(find, **cache.env | {"HF_HUB_OFFLINE": "1"})
    assert code == 0, errors
    folder = Path(said.splitlines()[-1])
    assert {name: (folder / name).read_bytes() for name in hub.WEIGHTS} == hub.WEIGHTS
    assert served.requests == []


async def test_an_engine_that_stays_offline_is_filled_online(cache, served):
    assert (await cache.fill(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1"))[0] == 0
    assert cache.marker.is_file()


async def test_killed_at_half_it_goes_on_there_whoever_holds_the_locks(cache, served):
    served.held = SECOND
    child = cache.start(HEARTH_MODEL_LINK=cache.link)
    others = [content for name, content in hub.WEIGHTS.items() if name != SECOND]
    await served.half_sent()
    await cache.until_it_holds(*others)
    child.kill()
    await programs.end(child)
    assert not cache.marker.exists()
    assert not cache.link.is_symlink()

    served.held = ""
    with ExitStack() as held:
        locks = [path for path in cache.files(".lock") if ".hearth" not in path.parts]
        assert locks
        for path in locks:
            hold(held, path)
        code, _, errors = await cache.fill(HEARTH_MODEL_LINK=cache.link)
    assert (code, errors) == (0, "")
    assert {name: (cache.link / name).read_bytes() for name in hub.WEIGHTS} == hub.WEIGHTS
    assert served.sent.pop(SECOND) <= len(hub.WEIGHTS[SECOND]) * 3 // 2
    assert served.sent == {name: len(hub.WEIGHTS[name]) for name in served.sent}
    assert cache.files(".incomplete") == []


async def test_it_ends_when_its_pod_is_no_longer_wanted(cache, served):
    served.held = SECOND
    child = cache.start()
    await served.half_sent()
    child.terminate()
    assert (await programs.end(child))[0] == 143
    assert not cache.marker.exists()


async def test_two_runs_at_once_fetch_each_file_once(cache, served):
    served.held = SECOND
    first = cache.start()
    await served.half_sent()
    second = cache.start()
    await cache.until_it_says(second, "waits for another run that writes to this cache")
    served.released.set()
    assert (await programs.end(first))[0] == 0
    assert await programs.end(second) == (0, "", "")
    assert served.sent == {name: len(content) for name, content in hub.WEIGHTS.items()}


async def test_a_lock_that_nobody_works_behind_is_passed_over(cache):
    text = program_texts.DOWNLOAD.replace("IDLE_S = 300.0", "IDLE_S = 0.0")
    assert text != program_texts.DOWNLOAD
    cache.marker.parent.mkdir(parents=True)
    with ExitStack() as held:
        hold(held, Path(f"{cache.marker}.lock"))
        code, said, _ = await cache.fill(text)
    assert (code, cache.marker.is_file()) == (0, True)
    assert "goes on without it" in said


async def test_a_file_that_lost_its_end_is_fetched_again_and_no_other(cache, served, scheme):
    assert (await cache.fill(HEARTH_MODEL_LINK=cache.link))[0] == 0
    cache.marker.unlink()
    os.truncate(cache.link / FIRST, 1000)
    code, said, _ = await cache.fill()
    assert code == 0
    # The other library looks itself.
    assert scheme != "hf" or f"{FIRST} has 1000 bytes, and 1048576 by the hub's list" in said
    assert cache.holds(hub.WEIGHTS[FIRST])
    assert served.sent.pop(FIRST) == 2 * len(hub.WEIGHTS[FIRST])
    assert served.sent == {name: len(hub.WEIGHTS[name]) for name in served.sent}


@pytest.mark.parametrize("name", ["config.json", SECOND])
async def test_a_size_that_is_not_the_hubs_is_no_whole_model(cache, served, name):
    served.listed[name] = len(hub.WEIGHTS[name]) + 7
    code, _, errors = await cache.fill(HEARTH_MODEL_LINK=cache.link)
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith(f"wrong size from {served.url.removeprefix('http://')}: ")
    assert not cache.marker.exists()
    assert not cache.link.is_symlink()


async def test_a_model_without_files(cache, served):
    served.files.clear()
    code, _, errors = await cache.fill()
    assert (code, errors) == (1, "the hub lists no files of this model\n")
    assert not cache.marker.exists()


@pytest.mark.parametrize("name", ["../../../evil", "/evil"])
async def test_names_that_lead_out_of_the_cache(cache, served, name):
    served.files = {"config.json": b"{}", name: b"evil"}
    code, _, errors = await cache.fill()
    assert errors == f"the hub lists {name!r}, which leads out of the model's folder\n"
    assert (code, served.sent) == (1, {})
    assert not cache.marker.exists()


async def test_a_connection_that_breaks_is_made_again(cache, served):
    served.cut = FIRST
    assert (await cache.fill())[0] == 0
    assert cache.holds(hub.WEIGHTS[FIRST])


async def test_a_full_disk(cache):
    code, _, errors = await cache.fill(file_limit=1000)
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith(f"no space left in {cache.folder} (")
    assert " GB free): give the cache more" in errors
    assert not cache.marker.exists()


TOKENS = {"hf": "HF_TOKEN", "modelscope": "MODELSCOPE_API_TOKEN"}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "the token is missing or may not read org/model, or there is no such model; set"),
        (403, "may not read org/model: ask for access on its page"),
        (404, "there is no org/model, or the token may not see it"),
    ],
)
async def test_what_the_hub_denies_is_not_asked_again(cache, served, scheme, status, words):
    served.status = status
    code, said, errors = await cache.fill(**{TOKENS[scheme]: "hf_of-a-person"})
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith(f"{status} from {served.url.removeprefix('http://')}: ")
    assert words in errors
    assert (TOKENS[scheme] in errors) == (status != 404)
    assert "tries again" not in said
    assert not cache.marker.exists()


async def test_a_token_is_sent_and_never_told(cache, served, scheme):
    served.token = "hf_of-the-owner"
    for token, expected in (("hf_of-a-stranger", 1), (served.token, 0)):
        code, said, errors = await cache.fill(**{TOKENS[scheme]: token})
        assert code == expected, errors
        assert token not in said + errors


async def test_a_token_in_an_error_is_not_told(cache, served, scheme):
    """The hub sends it back in what goes wrong."""
    served.status = 418
    code, said, errors = await cache.fill(**{TOKENS[scheme]: "hf_of-the-owner"})
    assert (code, "hf_of-the-owner" in said + errors) == (1, False)


async def test_a_hub_that_is_away(tmp_path, scheme):
    cache = Cache(tmp_path, scheme, "http://127.0.0.1:1")
    code, said, errors = await cache.fill()
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith("127.0.0.1:1 cannot be reached: ")
    assert said.count("tries again in") == 7
    assert not cache.marker.exists()


async def test_a_hub_that_comes_back(tmp_path, scheme):
    async with hub.serve() as gone:
        port = int(gone.url.rpartition(":")[2])
    cache = Cache(tmp_path, scheme, gone)
    child = cache.start(HEARTH_RETRY_PAUSE_S="1")
    await cache.until_it_says(child, "tries again")
    async with hub.serve(port=port) as back:
        back.failures = 1
        assert (await programs.end(child))[0] == 0
    assert cache.marker.is_file()


async def test_an_image_without_the_library(cache, scheme):
    code, _, errors = await cache.fill(flags=["-S"])
    library = "huggingface_hub" if scheme == "hf" else "modelscope"
    assert (code, errors.count("\n")) == (1, 1)
    assert f"this image cannot import what downloads from {scheme}://" in errors
    assert f"No module named '{library}'" in errors


async def test_weights_do_not_go_beside_the_cache(cache, served, tmp_path):
    beside = {"HF_HOME": tmp_path / "beside", "MODELSCOPE_CACHE": tmp_path / "beside"}
    code, _, errors = await cache.fill(**beside)
    assert (code, errors.count("\n")) == (1, 1)
    assert f"which is not in the cache {cache.folder}" in errors
    assert served.requests == []


async def test_a_cache_that_it_may_not_write(cache, served):
    """Nobody may, not even root."""
    code, _, errors = await cache.fill(HEARTH_MARKER="/sys/hearth/.hearth/ready/x.json")
    assert (code, errors.count("\n")) == (1, 1)
    assert f"uid {os.getuid()} may not write there" in errors
    assert served.requests == []
