"""Names in the tree keep to docs/glossary.md: the old words do not come back."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

METAPHORS = {
    "bell", "door", "errand", "farewell", "guest", "knock", "nursery", "presence", "scene",
    "shortcut", "spell", "spells", "stranger", "strangers", "sweep", "visit", "visitor",
}  # fmt: skip
"""Words that no name has any more, wherever it stands."""

FORBIDDEN_CLASSES = re.compile(r"(Manager|Helper|Utils?|(?<!Security)(?<!Pod)Context)$")
FORBIDDEN_MODULES = {
    "base", "common", "constants", "core", "exceptions", "helpers", "lib", "manager", "misc",
    "types", "utils",
}  # fmt: skip

OLD_MODULES = {
    "hearth": """
        collector values role
    """,
    "hearth/proxy": """
        server answers faults activation bodies openai paths endpoints balance
        estimate readiness listing keys
    """,
    "hearth/proxy/wire": """
        front shortcut lingering receiving connection intake upload gate strangers visit
        farewell errand turn warm taking sending plans heads rewriting relay reply
        endings link pool names door sweep nursery parts guest
    """,
    "hearth/reconcile": """
        llmservice shared watching attention schemas publishing reading refusal advice
        selection site backend health vendors environment gateway scaling writing failures
        transitions telling servedname
    """,
    "hearth/keda": """
        scaler answers gate push spells scene unary blocks messages gathered streams
        presence identities tls certificates builtin server
    """,
    "hearth/cluster/autoscaler": """
        terms outcome arithmetic
    """,
    "hearth/cluster": """
        scoped
    """,
    "hearth/cluster/kube": """
        answers events
    """,
    "hearth/cluster/local": """
        commands leftovers owners ownership objects replicas schema sources
    """,
    "hearth/api": """
        plain wording served
    """,
}
"""Files before the words changed, by the folder that had them."""

OLD_CLASSES = {
    "hearth/proxy": """
        Front Shortcut Lingering Receiving Connection Intake Upload Seen Visit Farewell Errand Turn
        Warm State Phase Visitor Guarded Sending Plan Answer Answers Plans Known AnswerHead Chunked
        Sized Unbounded Misframed Relay Verdict Reply Unfinished Link Pool ServedNames Unknown Door
        Sweep Timed Nursery Main Parts Running Retiring Guest Sent GuestRequest GuestConnection
        Server Code Problem Activation Place Held Budget Pace Target Asked Passive Endpoints
        Balance Estimate Readiness Keys Owner Hearer Receiver Home Clock Caller WarmClient Uploading
    """,
    "hearth/reconcile": """
        Reconciler SharedEndpoints Watching FirstLook Edges Schemas Outdated Publisher Decided
        Refused Refusal Site Parts Health Devices Rejected Facts Memory Verdict Said Seen
    """,
    "hearth/keda": """
        Scaler Answers Unknown Gate Pushes Spell Told Scene Gathered ManyStreams Presence
        Installation Identities Door
    """,
    "hearth/cluster": """
        Terms Seen Rules Memory Pace Scoped Sighting Lines Watcher Bell Room Recorder Place
        Kills Found Layout Books
    """,
}
"""Classes before the words changed, by the folder that had them."""


def words(name: str) -> set[str]:
    """`ClientPool` and `client_pool` are client, pool."""
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def names_in(path: Path) -> set[str]:
    """A file's own name and those of its classes and functions."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = ast.walk(ast.parse(path.read_text()))
    return {path.stem} | {node.name for node in nodes if isinstance(node, kinds)}


def classes_in(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.ClassDef)}


def files(folder: str) -> list[Path]:
    """Those that people write, in folders below too."""
    every = (ROOT / folder).rglob("*.py")
    return [path for path in every if "externalscaler" not in path.parts]


@pytest.mark.parametrize("folder", ["hearth", "tests"])
def test_names_are_no_metaphors(folder):
    names = {(path.name, name) for path in files(folder) for name in names_in(path)}
    assert {(path, name) for path, name in names if words(name) & METAPHORS} == set()


def test_no_class_or_module_says_nothing():
    found = [path.stem for path in files("hearth") if path.stem in FORBIDDEN_MODULES]
    for path in files("hearth"):
        found += [name for name in classes_in(path) if FORBIDDEN_CLASSES.search(name)]
    assert found == []


@pytest.mark.parametrize("folder", OLD_CLASSES)
def test_old_classes_do_not_come_back(folder):
    names = set().union(*map(classes_in, files(folder)))
    assert names & set(OLD_CLASSES[folder].split()) == set()


@pytest.mark.parametrize("folder", OLD_MODULES)
def test_old_modules_do_not_come_back(folder):
    stems = {path.stem for path in files(folder) if path.parent == ROOT / folder}
    assert stems & set(OLD_MODULES[folder].split()) == set()
