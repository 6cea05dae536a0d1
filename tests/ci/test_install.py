"""What is installed, by whom and when; that the locks agree; that scripts are what Bash reads."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata

import install
import pytest
from install import DEVELOPMENT, PRODUCT, ROOT, TOOLS, FailedError
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


# The locks


def locked(path):
    """Versions by name, of what is for this machine."""
    found = {}
    for name, block in install.entries(path).items():
        first = Requirement(block.partition("\\")[0])
        if first.marker is None or first.marker.evaluate():
            found[name] = str(first.specifier).removeprefix("==")
    return found


def needed(texts, extras=frozenset({""})):
    """All that these requirements lead to, as it is installed here."""
    found, ahead = {}, [(Requirement(text), extras) for text in texts]
    while ahead:
        wanted, of = ahead.pop()
        if wanted.marker and not any(wanted.marker.evaluate({"extra": each}) for each in of):
            continue
        name, inner = canonicalize_name(wanted.name), frozenset(wanted.extras | {""})
        if (name, inner) in found:
            continue
        found[name, inner] = metadata.version(name)
        assert wanted.specifier.contains(found[name, inner]), wanted
        ahead += [(Requirement(text), inner) for text in metadata.requires(name) or []]
    return {name: version for (name, _), version in found.items()}


def test_the_locks_have_what_pyproject_leads_to_and_nothing_else():
    extras = PROJECT["project"]["optional-dependencies"]
    product = [*PROJECT["project"]["dependencies"], *extras["uvloop"]]
    assert needed(product) == locked(PRODUCT)
    assert needed([*product, *extras["dev"]]) == locked(DEVELOPMENT)


def test_what_the_product_has_development_has_in_the_same_version_with_the_same_hashes():
    assert install.entries(PRODUCT).items() <= install.entries(DEVELOPMENT).items()


def test_the_tools_are_those_that_pyproject_names_and_builds_with():
    group = {Requirement(text).name: text for text in PROJECT["dependency-groups"]["install"]}
    assert {canonicalize_name(name) for name in group} == set(install.entries(TOOLS))
    for name, text in group.items():
        assert Requirement(text).specifier.contains(locked(TOOLS)[canonicalize_name(name)])
    assert set(PROJECT["build-system"]["requires"]) <= set(group.values())


@pytest.mark.parametrize("lock", [TOOLS, PRODUCT, DEVELOPMENT], ids=lambda path: path.name)
def test_each_entry_has_its_hashes(lock):
    for block in install.entries(lock).values():
        assert re.fullmatch(r".*(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n", block), block
    assert "".join(install.entries(lock).values()) == lock.read_text()


# When

MAKEFILE = (ROOT / "Makefile").read_text()
FILES = re.search(r"^INSTALL := (.*)$", MAKEFILE, re.MULTILINE)[1].split()
DEMO, DEVELOPMENT_STAMP = ".venv/installed", ".venv/installed-dev"
WITHOUT, WITH = ["scripts/install"], ["scripts/install --dev"]


@pytest.mark.parametrize(
    ("target", "stamps", "changed", "installs"),
    [
        ("demo", [], [], WITHOUT),
        ("test", [], [], WITH),
        ("test-cluster", [], [], WITH),
        ("format", [], [], WITH),
        ("bench-gateway", [], [], WITHOUT),
        ("demo", [DEMO], [], []),
        ("test", [DEMO], [], WITH),
        ("demo", [DEMO, DEVELOPMENT_STAMP], [], []),
        ("test", [DEMO, DEVELOPMENT_STAMP], [], []),
        ("demo", [DEMO, DEVELOPMENT_STAMP], ["requirements-dev.lock"], []),
        ("test", [DEMO, DEVELOPMENT_STAMP], ["requirements-dev.lock"], WITH),
        *(("demo", [DEMO, DEVELOPMENT_STAMP], [name], WITHOUT) for name in FILES),
        *(("test", [DEMO, DEVELOPMENT_STAMP], [name], WITH) for name in FILES),
    ],
)
def test_make_installs_what_is_missing_or_changed(tmp_path, target, stamps, changed, installs):
    (tmp_path / "Makefile").write_text(MAKEFILE)
    for date, names in enumerate([[*FILES, "requirements-dev.lock"], stamps, changed], start=1):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.touch()
            os.utime(path, (date, date))
    command = ["make", "--dry-run", "PYTHON=python3", target]
    run = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert re.findall(r"scripts/install\b.*", run.stdout) == installs


@pytest.mark.parametrize(
    ("lock", "stamps"),
    [
        (PRODUCT, {"installed"}),
        (DEVELOPMENT, {"installed", "installed-dev"}),
    ],
)
def test_who_has_all_has_what_the_product_needs(venv, monkeypatch, lock, stamps):
    monkeypatch.setattr(sys, "argv", ["install", *["--dev"][: lock == DEVELOPMENT]])
    assert install.main() == 0
    assert {path.name for path in venv.folder.iterdir() if "installed" in path.name} == stamps


# By whom


class Venv:
    """What is run there; a uv that is or is not."""

    def __init__(self, folder):
        self.folder = folder
        self.uv = folder / "uv"
        self.ran = []
        self.fail = {}
        self.settings = ""

    def pip(self):
        """One that only lists its settings."""
        return [sys.executable, "-c", f"print({self.settings!r})"]

    def run(self, *command, env=None):
        words = " ".join(str(word) for word in command)
        tool = "uv" if command[0] == self.uv else "pip"
        self.ran.append((tool, words))
        for (name, pattern), output in self.fail.items():
            if tool == name and pattern in words:
                raise FailedError(output)
        if str(TOOLS) in words:
            self.uv.touch()

    def who(self):
        """Who installed the packages, and who Hearth itself."""
        return [
            (tool, "itself" if "--editable" in words else "packages")
            for tool, words in self.ran
            if "--editable" in words or str(PRODUCT) in words or str(DEVELOPMENT) in words
        ]


@pytest.fixture
def venv(tmp_path, monkeypatch):
    venv = Venv(tmp_path)
    monkeypatch.setattr(install, "VENV", tmp_path)
    monkeypatch.setattr(install, "UV", venv.uv)
    monkeypatch.setattr(install, "UNFINISHED", tmp_path / "unfinished")
    stamps = {PRODUCT: tmp_path / "installed", DEVELOPMENT: tmp_path / "installed-dev"}
    monkeypatch.setattr(install, "STAMPS", stamps)
    monkeypatch.setattr(install, "environment", venv.pip)
    monkeypatch.setattr(install, "run", venv.run)
    return venv


BY_UV = [("uv", "packages"), ("uv", "itself")]
BY_PIP = [("pip", "packages"), ("pip", "itself")]


def test_uv_installs(venv):
    install.install(PRODUCT)
    assert venv.who() == BY_UV
    assert not any("--reinstall" in words for _, words in venv.ran)
    assert list(venv.folder.iterdir()) == [venv.uv]


def test_pip_installs_where_the_index_has_no_uv(venv):
    venv.fail["pip", str(TOOLS)] = "ERROR: No matching distribution found for uv==0.13.9"
    install.install(PRODUCT)
    assert venv.who() == BY_PIP
    rest = install.entries(venv.folder / "without-uv.lock")
    assert rest.items() < install.entries(TOOLS).items() and "uv" not in rest


def test_pip_installs_where_uv_fails(venv):
    venv.fail["uv", "--require-hashes"] = "error: no"
    install.install(PRODUCT)
    assert venv.who() == [("uv", "packages"), *BY_PIP]


def test_pip_installs_where_it_is_told_something_that_uv_is_not(venv):
    venv.settings = "global.platform='any'"
    install.install(PRODUCT)
    assert venv.who() == BY_PIP


def test_without_the_index_it_ends_at_once_and_says_what_to_do(venv, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["install"])
    venv.fail["pip", str(TOOLS)] = (
        "WARNING: Retrying (Retry(total=0))\nERROR: No matching distribution"
    )
    assert install.main() == 1
    assert len(venv.ran) == 1
    assert "PIP_INDEX_URL" in capsys.readouterr().err
    assert not (venv.folder / "installed").exists()


@pytest.mark.parametrize(("tool", "flag"), [("uv", "--reinstall"), ("pip", "--ignore-installed")])
def test_what_was_cut_is_written_again(venv, tool, flag):
    venv.fail = {("uv", "--require-hashes"): "no", ("pip", "--requirement"): "no space"}
    with pytest.raises(FailedError):
        install.install(DEVELOPMENT)
    venv.ran.clear()
    venv.fail = {("uv", "--require-hashes"): "no"} if tool == "pip" else {}
    install.install(DEVELOPMENT)
    [words] = [words for by, words in venv.ran if by == tool and str(DEVELOPMENT) in words]
    assert flag in words
    venv.ran.clear()
    install.install(DEVELOPMENT)
    assert not any(flag in words for _, words in venv.ran if str(DEVELOPMENT) in words)


def test_tools_are_fetched_once(venv):
    install.install(PRODUCT)
    for name, block in install.entries(TOOLS).items():
        version = block.split()[0].partition("==")[2]
        folder = f"lib/python3.11/site-packages/{name.replace('-', '_')}-{version}.dist-info"
        (venv.folder / folder).mkdir(parents=True)
        (venv.folder / folder / "RECORD").touch()
    venv.ran.clear()
    install.install(PRODUCT)
    assert [tool for tool, _ in venv.ran] == ["uv", "uv"]


@pytest.mark.parametrize(
    ("version", "it_does"),
    [(None, False), ("20.3.4", False), ("22.2", False), ("22.3", True), ("23.0.1", True)],
)
def test_which_pip_installs_into_other_environments(version, it_does):
    assert install.serves_others(version) is it_does


# What is said


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("WARNING: Retrying (Retry(total=4)) … [SSL: CERTIFICATE_VERIFY_FAILED]", "PIP_CERT"),
        ("WARNING: Retrying (Retry(total=4)) … Tunnel connection failed: 407", "PIP_PROXY"),
        ("WARNING: Retrying (Retry(total=4)) …\nERROR: No matching distribution", "PIP_INDEX_URL"),
        ("ERROR: Could not install packages: [Errno 28] No space left on device", "make room"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE", "not what is locked"),
        ("error: failed to create .venv/x: Permission denied (os error 13)", "sudo rm -r .venv"),
        ("ERROR: No matching distribution found for aiohttp==3", "PYTHON="),
        ("Killed", "make clean"),
    ],
)
def test_a_failure_says_what_to_do(output, words):
    assert words in install.advice(output)


def test_large_downloads_are_told_and_a_silence_is_not_long(tmp_path, monkeypatch):
    told, heard = [], tmp_path / "heard"

    def say(words):
        told.append(words.strip())
        if words.strip() == "...":
            heard.touch()

    monkeypatch.setattr(install, "say", say)
    monkeypatch.setattr(install, "SILENCE_S", 0.01)
    code = f"""if True:
        import os, time
        print("Downloading kubernetes (7.2MiB)")
        print("  Downloading http://host/uv/uv-0.13.9-py3-none-manylinux2014_x86_64.whl (17.6 MB)")
        print("  Downloading flit_core-3.12.0-py3-none-any.whl (45 kB)")
        while not os.path.exists({str(heard)!r}):
            time.sleep(0.01)
    """
    install.run(sys.executable, "-c", code)
    assert [words for words in told if words != "..."] == ["kubernetes (7.2MiB)", "uv (17.6 MB)"]
    assert "..." in told


def test_what_fails_has_its_output():
    code = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    with pytest.raises(FailedError, match="one\ntwo"):
        install.run(sys.executable, "-c", code)


def test_lines_have_no_control_characters(capsys):
    install.say("installing packages")
    assert re.fullmatch(r" *\d+ s  installing packages\n", capsys.readouterr().err)


# Scripts

SCRIPTS = [
    path
    for folder in (ROOT / "scripts", ROOT / ".ci")
    for path in sorted(folder.iterdir())
    if path.is_file() and path.suffix == ""
]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_scripts_are_bash(path):
    subprocess.run(["bash", "-n", path], check=True)
