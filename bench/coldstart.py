"""How long a cold request waits for its first token, and where that time goes.

    make bench-coldstart

Runs `hearth local` (with KUBECONFIG set: in that cluster, see `bench.kube_coldstart`) with one
service on the stub engine: default health (the kubelet asks every ten seconds), healthy two seconds
after its process started, 20 ms to the first token.  Five rounds, each from zero.  Prints a table,
writes bench/out/coldstart.json, and ends with status 1 where the median of the first token is
above 2.5 s.

Each moment is told by whoever it happened to, on one clock: the client's own, Hearth's debug log
(pushed, scaled, route published), the stub's log (ready) and the stub's record (the request came).
The stub's two seconds count from the start of its process, so its interpreter's start is part of
them; it is shown apart, since no engine of yours starts as fast.
"""

import asyncio
import datetime
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import aiohttp

ROUNDS = 5
LIMIT_S = 2.5
OUT = Path(__file__).parent / "out" / "coldstart.json"

MANIFESTS = """\
apiVersion: serving.hearth.dev/v1alpha1
kind: InferenceRuntime
metadata: {{name: stub}}
spec:
  vendor: cpu
  container:
    image: hearth/hearth:latest
    args:
    - stub
    - --model={{{{ .Model.Path }}}}
    - --served-model-name={{{{ .Service.Name }}}}
    - --host=$(POD_IP)
    - --port=8000
    - --load-time=2s
    - --first-token=20ms
    - --record={record}
---
apiVersion: serving.hearth.dev/v1alpha1
kind: LLMService
metadata: {{name: chat}}
spec:
  model: {{source: {{uri: "hf://bench/chat"}}}}
  runtime: {{name: stub}}
  scaling: {{scaleDownStabilization: 1s}}
  cache: {{strategy: None}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """When things happened in one round, in Unix seconds."""

    asked: float
    pushed: float
    scaled: float
    addressed: float
    engine_up: float
    healthy: float
    forwarded: float
    first_token: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The parts of one cold start; all but two count from the request."""

    push_ms: float
    replicas_ms: float
    address_s: float
    engine_start_ms: float
    """From the pod's address to the stub's first line: fork, interpreter, imports."""
    healthy_s: float
    healthy_to_forward_ms: float
    first_token_s: float


def measure(at: Moments) -> Round:
    """Moments to durations."""
    return Round(
        push_ms=(at.pushed - at.asked) * 1000,
        replicas_ms=(at.scaled - at.asked) * 1000,
        address_s=at.addressed - at.asked,
        engine_start_ms=(at.engine_up - at.addressed) * 1000,
        healthy_s=at.healthy - at.asked,
        healthy_to_forward_ms=(at.forwarded - at.healthy) * 1000,
        first_token_s=at.first_token - at.asked,
    )


def medians(rounds: list[Round]) -> dict[str, float]:
    """Of each part, over all rounds."""
    return {
        part.name: round(statistics.median(getattr(one, part.name) for one in rounds), 4)
        for part in fields(Round)
    }


def table(rounds: list[Round]) -> str:
    """Rounds and medians for a person."""
    names = [part.name for part in fields(Round)]
    rows = [["", *names]]
    rows += [[str(i), *_shown(asdict(one))] for i, one in enumerate(rounds, 1)]
    rows += [["median", *_shown(medians(rounds))]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def _shown(values: dict[str, float]) -> list[str]:
    return [f"{v:.3f}" if name.endswith("_s") else f"{v:.1f}" for name, v in values.items()]


class Bench:
    """One `hearth local` and what it tells."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._record = folder / "record.jsonl"
        self._log = folder / "hearth.log"
        self._seen = 0
        (folder / "chat.yaml").write_text(MANIFESTS.format(record=self._record))

    async def run(self) -> list[Round]:
        """All rounds.  Raises RuntimeError where Hearth does not start or answer."""
        with self._log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "hearth",
                "local",
                "-f",
                str(self._folder / "chat.yaml"),
                "--state-dir",
                str(self._folder / "state"),
                "--gateway-port=0",
                "--admin-port=0",
                "--scaler-port=0",
                "--log-level=debug",
                "--log-format=json",
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
            try:
                gateway, admin = await self._opening(process)
                async with aiohttp.ClientSession() as session:
                    return [await self._round(session, gateway, admin) for _ in range(ROUNDS)]
            finally:
                process.terminate()
                await process.communicate()

    async def _opening(self, process: asyncio.subprocess.Process) -> tuple[str, str]:
        assert process.stdout is not None
        said = ""
        async for line in process.stdout:
            said += line.decode()
            if "Logs" in said:
                addresses = re.findall(r"http://[^/\s]+", said)
                return addresses[0], addresses[1]
        raise RuntimeError(f"hearth local did not start: {said}{self._log.read_text()}")

    async def _round(self, session: aiohttp.ClientSession, gateway: str, admin: str) -> Round:
        await _asleep(session, admin)
        self._seen = len(self._log.read_bytes())
        url = f"{gateway}/v1/chat/completions"
        ask = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        asked = time.time()
        first_token = None
        async with session.post(url, json=ask) as response:
            async for line in response.content:
                if first_token is None and re.search(rb'"content":\s*"[^"]', line):
                    first_token = time.time()
        if first_token is None:
            raise RuntimeError("the answer held no token")
        stub = self._stub()
        logged = list(self._logged(since=asked))
        return measure(
            Moments(
                asked=asked,
                first_token=first_token,
                pushed=_first(logged, "pushed"),
                scaled=_first(logged, "scaled"),
                addressed=_first(logged, "route published", backends=1),
                engine_up=stub["loading"],
                healthy=stub["ready"],
                forwarded=self._forwarded(since=asked),
            )
        )

    def _logged(self, *, since: float) -> Iterator[dict[str, Any]]:
        for line in self._log.read_bytes()[self._seen :].splitlines():
            entry = json.loads(line)
            entry["at"] = datetime.datetime.fromisoformat(entry["time"]).timestamp()
            # Written in whole milliseconds, cut off: what is of this round may seem a little early.
            if entry["at"] > since - 0.001:
                yield entry

    def _stub(self) -> dict[str, float]:
        """When this round's stub said what; its log is the one that was written to last."""
        logs = (self._folder / "state/logs/default").glob("chat-*.log")
        text = max(logs, key=lambda path: path.stat().st_mtime).read_text()
        today = datetime.datetime.now()
        said = {}
        for clock, word in re.findall(r"^(\S+) hearth stub: (\w+)", text, re.MULTILINE):
            at = datetime.datetime.combine(today, datetime.time.fromisoformat(clock))
            said[word] = at.timestamp()
        return said

    def _forwarded(self, *, since: float) -> float:
        entries = map(json.loads, self._record.read_text().splitlines())
        return next(float(e["at"]) for e in entries if e["method"] == "POST" and e["at"] > since)


async def _asleep(session: aiohttp.ClientSession, admin: str) -> None:
    """Wait until nothing runs: at zero, and the last pod gone."""
    async with session.get(f"{admin}/hearth/events") as events:
        async for line in events.content:
            if line.startswith(b'data: {"version"'):
                (row,) = json.loads(line[6:])["services"]
                if row["phase"] == "ScaledToZero" and not row["active"]:
                    return
    raise RuntimeError("hearth local ended")


def _first(logged: list[dict[str, Any]], message: str, **keys: object) -> float:
    return next(
        float(entry["at"])
        for entry in logged
        if entry["message"] == message and keys.items() <= entry.items()
    )


def main() -> int:
    """Exit status: 0, or 1 where the first token takes longer than the limit."""
    if os.environ.get("KUBECONFIG"):
        # Imported where it is chosen: it stands on the tests' means, and on this file.
        from bench import kube_coldstart

        return kube_coldstart.report(asyncio.run(kube_coldstart.run()))
    with tempfile.TemporaryDirectory() as folder:
        rounds = asyncio.run(Bench(Path(folder)).run())
    middle = medians(rounds)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(middle | {"rounds": [asdict(one) for one in rounds]}, indent=2))
    print(table(rounds))
    share = middle["engine_start_ms"] / 10 / middle["first_token_s"]
    print(
        f"\nThe stub's interpreter and imports take {middle['engine_start_ms']:.0f} ms,"
        f" {share:.0f} % of the time to the first token, inside the two seconds that it loads."
        f"\nBeside those two seconds, everything took {middle['first_token_s'] - 2:.3f} s"
        f" (limit of the whole: {LIMIT_S} s).  Load of the machine: {os.getloadavg()[0]:.1f} on"
        f" {os.cpu_count()} processors."
    )
    return int(middle["first_token_s"] > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
