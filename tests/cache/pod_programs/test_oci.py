"""A model of a registry, from the pull by the real oras until it is in the cache."""

import json
import re
import subprocess
import sys
import tarfile

import anyio
import pytest

from hearth.api.llmservice import Cache
from hearth.cache import prewarm, program_texts, source
from tests import hanging, oras
from tests.cache.pod_programs import programs, registry
from tests.conftest import require

WEIGHTS = b"w" * 100_000


@pytest.fixture(scope="module")
def program():
    found = oras.find()
    require("oras", found is not None, "install Go, or let ORAS name it")
    return found


@pytest.fixture
async def served():
    async with registry.serve() as one:
        yield one


class Pod:
    """The containers of a Job's pod, one after the other, with folders for its volumes."""

    def __init__(self, folder, program) -> None:
        self.folder = folder
        self.program = program
        self.staging = folder / "staging"
        self.staging.mkdir()
        self.secret = folder / "config.json"

    def plan(self, reference):
        model = source.parse(f"oci://{reference}")
        wanted = prewarm.plan(Cache(strategy="NodeLocalPVC"), model)
        assert wanted is not None
        return wanted

    async def pull(self, reference):
        """The exit code of the init container, and what it said."""
        args = [
            word.replace(prewarm.STAGING, str(self.staging))
            for word in self.plan(reference).pull_args
        ]
        if self.secret.exists():
            args += ["--registry-config", str(self.secret)]
        done = await anyio.to_thread.run_sync(
            lambda: subprocess.run(
                [self.program, *args],
                env={"HOME": str(self.staging)},
                capture_output=True,
                text=True,
                timeout=hanging.limit_s(60),
            )
        )
        return done.returncode, done.stdout + done.stderr

    def promote(self, reference):
        env = {
            name: value.replace("/staging", str(self.staging)).replace("/cache", str(self.cache))
            for name, value in self.plan(reference).env.items()
        }
        return programs.run(program_texts.PROMOTE, **env)

    @property
    def cache(self):
        return self.folder / "cache"

    def model(self, reference):
        """Files of the model that is served; None without."""
        target = self.cache / "oci" / reference.rpartition("@")[2].replace(":", "-")
        if not (target / ".hearth-ready").is_file():
            return None
        found = (path for path in target.rglob("*") if path.is_file())
        files = {str(path.relative_to(target)): path.read_bytes() for path in found}
        marker = json.loads(files.pop(".hearth-ready"))
        assert marker["source"] == f"oci://{reference}"
        return files


@pytest.fixture
def pod(tmp_path, program):
    return Pod(tmp_path, program)


def entry(name, kind=tarfile.REGTYPE, link=""):
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, link, 0o777
    return member


@pytest.mark.parametrize("asks", [None, "Basic", "Bearer"])
async def test_a_model_is_pulled_and_served(pod, served, asks):
    served.asks = asks
    reference = served.push(
        served.file("config.json", b"{}"),
        served.file("weights.gguf", WEIGHTS),
        served.folder("tokens", entry("tokens", tarfile.DIRTYPE), entry("tokens/a"), content=b"t"),
    )
    if asks:
        pod.secret.write_text(registry.docker_config(served.host))
        pod.secret.chmod(0o400)
    code, said = await pod.pull(reference)
    assert code == 0, said
    pulled = [path for path in pod.staging.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o044 for path in pulled} == {0o044}, "another user copies them"
    assert pod.promote(reference)[0] == 0
    expected = {"config.json": b"{}", "weights.gguf": WEIGHTS, "tokens/a": b"t"}
    assert pod.model(reference) == expected
    assert ("GET /token" in served.requests) == (asks == "Bearer")


@pytest.mark.parametrize("asks", ["Basic", "Bearer"])
@pytest.mark.parametrize("password", [None, "of-another"])
async def test_a_registry_that_does_not_let_it_in(pod, served, asks, password):
    served.asks = asks
    reference = served.push(served.file("weights.gguf", WEIGHTS))
    if password:
        pod.secret.write_text(registry.docker_config(served.host, password))
    code, said = await pod.pull(reference)
    assert code != 0
    assert re.search("401|unauthorized|credential.* not found", said), said
    assert registry.credentials(password or "") not in said
    assert pod.model(reference) is None


async def test_an_artifact_that_is_not_there(pod, served):
    reference = f"{served.host}/{registry.REPOSITORY}@sha256:{'0' * 64}"
    code, said = await pod.pull(reference)
    assert (code != 0, "not found" in said) == (True, True)


async def test_content_that_is_not_what_its_digest_says(pod, served):
    layer = served.file("weights.gguf", WEIGHTS)
    served.tampered.add(layer["digest"])
    code, said = await pod.pull(served.push(layer))
    assert (code != 0, "mismatch" in said) == (True, True), said


@pytest.mark.parametrize("title", ["../evil", "a/../../evil", "/evil", "{folder}/evil"])
async def test_a_title_that_leads_out_of_the_staging_folder(pod, served, title):
    layer = served.file(title.format(folder=pod.folder), WEIGHTS)
    code, said = await pod.pull(served.push(layer))
    assert (code != 0, "path traversal" in said) == (True, True), said
    assert not list(pod.folder.rglob("evil"))
    assert not await anyio.Path("/evil").exists()


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (entry("d/evil", tarfile.SYMTYPE, "fine"), "d/evil: a symbolic link; "),
        (entry("d/evil", tarfile.LNKTYPE, "d/fine"), "a hard link; "),
    ],
)
async def test_a_link_in_a_folder_is_pulled_and_not_promoted(pod, served, member, words):
    folder = (entry("d", tarfile.DIRTYPE), entry("d/fine"), member)
    reference = served.push(served.folder("d", *folder, content=b"f"))
    code, said = await pod.pull(reference)
    assert code == 0, said
    code, _, errors = pod.promote(reference)
    assert (code, words in errors) == (1, True), errors
    assert pod.model(reference) is None


@pytest.mark.parametrize("link", ["/etc/passwd", "../../secret", "../../../../../etc/passwd"])
async def test_a_link_out_of_a_folder_comes_nowhere(pod, served, link):
    folder = (entry("d", tarfile.DIRTYPE), entry("d/evil", tarfile.SYMTYPE, link))
    reference = served.push(served.folder("d", *folder))
    code, _ = await pod.pull(reference)
    if code == 0:
        assert pod.promote(reference)[0] == 1
    assert pod.model(reference) is None


async def test_what_a_killed_pull_left_does_not_stop_the_next(pod, served):
    """The staging folder outlives the container."""
    reference = served.push(served.file("weights.gguf", WEIGHTS))
    (pod.staging / "model").mkdir()
    (pod.staging / "model/weights.gguf").write_bytes(b"half")
    code, said = await pod.pull(reference)
    assert code == 0, said
    assert pod.promote(reference)[0] == 0
    assert pod.model(reference) == {"weights.gguf": WEIGHTS}


def test_the_version_is_the_one_that_releases_pull_with(program):
    said = subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout
    assert oras.VERSION.removeprefix("v") in said or sys.platform != "linux"
