"""The engine's own `/metrics`, under vLLM's names and in Prometheus' text format."""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_FIRST_TOKEN_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0,
                  7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)  # fmt: skip
_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
            10.0, 20.0, 40.0, 80.0)  # fmt: skip
_REQUEST_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
              120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)  # fmt: skip
_FINISHES = ("stop", "length", "abort")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str, labels: str) -> list[str]:
        total, lines = 0, []
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {total}')
        return [*lines, f"{name}_count{{{labels}}} {total}", f"{name}_sum{{{labels}}} {self._sum}"]


class Counted:
    """One request among those waiting, then among those running."""

    def __init__(self, metrics: "EngineMetrics") -> None:
        self._metrics = metrics
        self.running = False
        metrics.waiting += 1

    def runs(self) -> None:
        """It waits no longer."""
        self.running = True
        self._metrics.waiting -= 1
        self._metrics.running += 1

    def ends(self) -> None:
        """It is gone, from wherever it was."""
        if self.running:
            self._metrics.running -= 1
        else:
            self._metrics.waiting -= 1


class EngineMetrics:
    """Numbers of one engine; written by its server."""

    def __init__(self, model: str, *, slots: int | None) -> None:
        escaped = model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        self._labels = f'engine="0",model_name="{escaped}"'
        self._slots = slots or 256
        self.running = 0
        self.waiting = 0
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.finished: Counter[str] = Counter()
        self.first_token_s = _Histogram(_FIRST_TOKEN_S)
        self.token_s = _Histogram(_TOKEN_S)
        self.request_s = _Histogram(_REQUEST_S)

    @contextmanager
    def request(self, *, prompt_tokens: int) -> Iterator[Counted]:
        """Count one request for the length of the block."""
        counted = Counted(self)
        started = time.monotonic()
        try:
            yield counted
        except BaseException:
            self.finished["abort"] += 1
            raise
        finally:
            counted.ends()
            self.prompt_tokens += prompt_tokens
            self.request_s.observe(time.monotonic() - started)

    def render(self) -> str:
        """The whole page."""
        labels = self._labels
        lines: list[str] = []

        def family(name: str, kind: str, text: str, samples: list[str]) -> None:
            lines.extend((f"# HELP vllm:{name} {text}", f"# TYPE vllm:{name} {kind}", *samples))

        def gauge(name: str, text: str, value: float) -> None:
            family(name, "gauge", text, [f"vllm:{name}{{{labels}}} {value}"])

        def counter(name: str, text: str, value: int) -> None:
            family(f"{name}_total", "counter", text, [f"vllm:{name}_total{{{labels}}} {value}"])

        def histogram(name: str, text: str, values: _Histogram) -> None:
            family(name, "histogram", text, values.lines(f"vllm:{name}", labels))

        gauge("num_requests_running", "Requests in execution.", self.running)
        gauge("num_requests_waiting", "Requests waiting for execution.", self.waiting)
        used = min(1.0, self.running / self._slots)
        gauge("kv_cache_usage_perc", "KV-cache usage; 1 is full.", used)
        counter("prompt_tokens", "Prompt tokens processed.", self.prompt_tokens)
        counter("generation_tokens", "Tokens generated.", self.generated_tokens)
        family(
            "request_success_total",
            "counter",
            "Requests processed, by how they ended.",
            [
                f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} '
                f"{self.finished[reason]}"
                for reason in _FINISHES
            ],
        )
        histogram("time_to_first_token_seconds", "Time to the first token.", self.first_token_s)
        histogram("inter_token_latency_seconds", "Time between tokens.", self.token_s)
        histogram("e2e_request_latency_seconds", "Time of a whole request.", self.request_s)
        return "\n".join([*lines, ""])
