"""Medians and ratios of what was measured, by the numbers of the gateway's rows."""

import statistics
from collections import defaultdict

Rows = dict[str, dict[str, list[dict]]]
"""What was found, by workload and proxy."""

FIGURES = ("errors", "cpu_us_per_chunk", "rps", "cpu_us_per_req", "cpu_ms_per_req",
            "rss_per_conn_kb", "kib", "max_gap_s", "proxy_util")  # fmt: skip
"""Of one run, as it is shown."""


def value(result: dict, path: str) -> float:
    """A figure by its dotted name."""
    inner: object = result
    for part in path.split("."):
        inner = inner[part] if isinstance(inner, dict) else None
    if not isinstance(inner, (int, float)):
        raise KeyError(path)
    return float(inner)


class Medians:
    """Of one set of runs."""

    def __init__(self, found: Rows) -> None:
        self._found = found

    def values(self, workload: str, proxy: str, path: str) -> list[float]:
        return [value(r, path) for r in self._found.get(workload, {}).get(proxy, ())]

    def of(self, workload: str, proxy: str, path: str) -> float | None:
        values = self.values(workload, proxy, path)
        return statistics.median(values) if values else None

    def added(self, workload: str, proxy: str, path: str) -> float | None:
        """Above a direct connection."""
        mine, direct = self.of(workload, proxy, path), self.of(workload, "direct", path)
        return None if mine is None or direct is None else mine - direct

    def table(self) -> dict[str, dict[str, dict[str, float]]]:
        """The plain figures, by workload and proxy."""
        return {
            workload: {
                name: {
                    path: round(statistics.median(float(r[path]) for r in results), 3)
                    for path in FIGURES
                    if all(r.get(path) is not None for r in results)
                }
                for name, results in by.items()
            }
            for workload, by in self._found.items()
        }

    def of_each(self) -> "list[Medians]":
        """The same for each repetition alone."""
        count = max((len(rs) for by in self._found.values() for rs in by.values()), default=0)
        return [
            Medians(
                {w: {p: rs[n : n + 1] for p, rs in by.items()} for w, by in self._found.items()}
            )
            for n in range(count)
        ]


def _ratio(mine: float | None, theirs: float | None) -> float | None:
    if mine is None or theirs is None:
        return None
    # A peer that adds nothing, or less, leaves no ratio.
    return round(mine / theirs, 3) if theirs > 0 else None


def rows(medians: Medians, peers: list[str]) -> dict[str, dict[str, float]]:
    """The figures of rows 1 to 8."""
    m = medians
    result: dict[str, dict[str, float | None]] = defaultdict(dict)
    for peer in peers:

        def cpu(workload: str, path: str, peer: str = peer) -> float | None:
            return _ratio(m.of(workload, "hearth", path), m.of(workload, peer, path))

        def late(workload: str, path: str, peer: str = peer) -> float | None:
            return _ratio(m.added(workload, "hearth", path), m.added(workload, peer, path))

        result["1"][peer] = cpu("s500-50", "cpu_us_per_chunk")
        result["2"][f"{peer}_cpu"] = cpu("s500-20-lock", "cpu_us_per_chunk")
        result["2"][f"{peer}_p99"] = late("s500-20-lock", "lat_us.p99")
        result["3"][f"{peer}_p50"] = late("s500-50", "lat_us.p50")
        result["3"][f"{peer}_p99"] = late("s500-50", "lat_us.p99")
        result["4"][f"{peer}_50"] = cpu("json-50", "rps")
        result["4"][f"{peer}_500"] = cpu("json-500", "rps")
        result["5"][peer] = cpu("churn-50", "rps")
        result["8"][peer] = cpu("post-20mb", "cpu_ms_per_req")
    gap = m.of("hold", "hearth", "max_gap_s")
    result["6"] = {
        "kib": _rounded(m.of("hold", "hearth", "rss_per_conn_kb")),
        "late_s": None if gap is None else round(max(0.0, gap - 10), 3),
        "first_ms": _rounded(m.of("hold", "hearth", "ttft_us.p99"), 1000),
    }
    result["7"]["kib"] = _rounded(m.of("active", "hearth", "kib"))
    return {row: {k: v for k, v in cells.items() if v is not None} for row, cells in result.items()}


def spread(tables: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, list[float]]]:
    """The lowest and the highest of each figure, from those of each repetition."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for table in tables:
        for row, cells in table.items():
            for name, figure in cells.items():
                found[row][name].append(figure)
    return {
        row: {name: [min(figures), max(figures)] for name, figures in cells.items()}
        for row, cells in found.items()
    }


def _rounded(number: float | None, by: float = 1) -> float | None:
    return None if number is None else round(number / by, 3)
