"""What there is to run, in the order of its worth, and how long it takes on the quiet machine."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from planning import Step

ROOT = Path(__file__).resolve().parents[1]
KUBE = ROOT.parent / "shared" / "kube"
ENGINE = ROOT.parent / "shared" / "engine"
HOME = Path(
    os.environ.get("HEARTH_KUBE_HOME")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hearth-kube"
)
IMAGE = "localhost/hearth:dev"
KEDA, ANOTHER, WITHOUT_KEDA = "with KEDA", "another with KEDA", "without KEDA"
"""The boxes; steps that name the same one share it."""
PYTEST = (".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=5")


@dataclass(frozen=True, slots=True)
class Work:
    """A step, and how it is done."""

    step: Step
    command: tuple[str, ...]
    box: str = ""
    proof: str = ""
    """The file by which a benchmark shows that it worked; its limits are for a machine that does
    nothing else, and not judged."""
    environment: dict[str, str] = field(default_factory=dict)


def there_is() -> list[Work]:
    """All of it, as far as its means are here."""
    cluster = (KUBE / "box").exists()
    found = [
        Work(Step("what the tests need", 60, must=True, own=False), (".ci/needs",)),
        Work(Step("make test", 780, must=True), ("make", "test")),
    ]
    if cluster:
        found.append(Work(Step("the images", 180, must=True, own=False), (".ci/images",)))
        found += in_the_box()
    if shutil.which("go"):
        packages = ".ci/packages gcc libc6-dev nginx-light util-linux"
        found.append(
            Work(
                Step("make bench-gateway", 40, fixed_s=70),
                ("bash", "-c", f"{packages} && make bench-gateway ARGS=--quick"),
            )
        )
    return found


def in_the_box() -> list[Work]:
    """The real cluster: a short life, then all else. The first in a box waits for its start."""
    return [
        tests("a short life in the box", *SHORT_LIFE, quiet_s=70, fixed_s=40, must=True),
        tests("leaders", "test_leaders.py", quiet_s=40, fixed_s=120),
        tests("rules", "test_rules.py", quiet_s=40, fixed_s=95),
        tests("outages", "test_outages.py", quiet_s=30, fixed_s=90),
        tests("failures", "test_failures.py", quiet_s=30, fixed_s=50),
        tests("the rest of scaling", "test_scaling.py", but=SHORT_LIFE, quiet_s=30, fixed_s=30),
        tests("Helm", "test_helm.py", quiet_s=80, fixed_s=80),
        tests("a move", "test_move.py", quiet_s=50, fixed_s=45),
        tests("mutual TLS", "test_mutual_tls.py", quiet_s=20, fixed_s=80),
        tests("weights", "test_cache.py", quiet_s=40, fixed_s=50),
        tests("a real model", "test_llama.py", quiet_s=20, fixed_s=15),
        tests("many services", "test_many.py", quiet_s=80, fixed_s=90, box=ANOTHER),
        tests("quiet minutes", "test_quiet.py", quiet_s=10, fixed_s=215, box=ANOTHER),
        bench("coldstart", "bench-coldstart", quiet_s=20, fixed_s=40),
        bench("reconcile", "bench-reconcile",
              "ARGS=--cluster --services 100 --steady 20 --no-polling", quiet_s=60, fixed_s=150),
        tests("without KEDA", "test_builtin_scaler.py", quiet_s=40, fixed_s=60, box=WITHOUT_KEDA),
    ]  # fmt: skip


SHORT_LIFE = (
    "test_scaling.py::test_a_cold_stream_beats_speaks_and_sleeps_again",
    "test_scaling.py::test_one_becomes_three_and_a_replica_that_goes_finishes_its_stream",
    "test_scaling.py::test_a_request_that_ended_its_engine_is_not_sent_again",
)
"""From zero to one by a push, tokens, to zero; to three, and a drain; a fault."""


def tests(
    name: str,
    *paths: str,
    quiet_s: float,
    fixed_s: float,
    must: bool = False,
    box: str = KEDA,
    but: tuple[str, ...] = (),
) -> Work:
    """Tests of the real cluster; nothing may be skipped there."""
    words = [f"tests/kubernetes/{path}" for path in paths]
    words += [f"--deselect=tests/kubernetes/{path}" for path in but]
    keda = "no-keda,keda.yaml" if box == WITHOUT_KEDA else "keda"
    require = f"kubernetes,helm,helm3,kubectl,node,faults,audit,llama,openssl,hub,registry,{keda}"
    return Work(
        Step(name, quiet_s, fixed_s=fixed_s, must=must),
        (*PYTEST, *words),
        box=box,
        environment=cluster() | {"HEARTH_TEST_CLUSTER": "1", "HEARTH_TEST_REQUIRE": require},
    )


def bench(name: str, *target: str, quiet_s: float, fixed_s: float) -> Work:
    return Work(
        Step(f"make {target[0]}", quiet_s, fixed_s=fixed_s),
        ("make", *target),
        box=ANOTHER,
        proof=f"bench/out/{name}.json",
        environment=cluster(),
    )


def cluster() -> dict[str, str]:
    """What tests and benchmarks want to know of the box."""
    run = HOME / "run"
    return {
        "CONTROLLERS_FLAGS": "--horizontal-pod-autoscaler-sync-period=2s",
        "HEARTH_TEST_IMAGE": IMAGE,
        "HEARTH_TEST_FAULTS": str(run / "down"),
        "HEARTH_TEST_AUDIT": str(run / "log" / "audit.jsonl"),
        "HEARTH_TEST_KEDA": str(KUBE / "keda.yaml"),
        "HEARTH_TEST_HUB_IMAGE": "localhost/hearth-hub:dev",
        "HEARTH_TEST_ORAS_IMAGE": "localhost/oras:dev",
        "HEARTH_TEST_REGISTRY": str(Path(os.environ.get("HEARTH_CI_FOLDER", "")) / "registry"),
        "HEARTH_TEST_LLAMA_IMAGE": "localhost/llama-server:1",
        "HEARTH_TEST_LLAMA_MODELS": str(_engines() / "models"),
        "HEARTH_TEST_QUIET_S": "180",
    }


def _engines() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("HEARTH_ENGINE_HOME") or cache / "hearth-engine")


def told() -> dict[str, str]:
    """What `.ci/needs` has written down for the steps after it."""
    path = Path(os.environ.get("HEARTH_CI_FOLDER", "")) / "environment"
    lines = path.read_text().splitlines() if path.is_file() else []
    return dict(line.split("=", 1) for line in lines)
