"""Hearth's data path beside a direct connection, nginx and a tuned Go proxy; `make bench-gateway`.

In a repetition every proxy runs every workload once, in rotated order.  Medians and ratios are
printed, and written to bench/out/gateway.json under the numbers of the floors below.
"""

import argparse
import json
import signal
import sys
from collections import defaultdict

from bench import cold, fleet
from bench.figures import FIGURES, Medians, Rows, rows, spread
from bench.fleet import CHAT, STREAM, Fleet, Proxy


def stream(count: int, rate: int, *, chunks: int = 200, more: str = "") -> str:
    return f"-m stream -c {count} -u {STREAM}?n={chunks}&size=200&rate={rate}{more} -T 120"


WORKLOADS = {
    "s500-50": stream(500, 50),
    "s500-20-lock": stream(500, 20, more="&lock=1"),
    "json-50": f"-m json -c 50 -w 0.7 -d 3 -u {CHAT}?out=1500",
    "json-500": f"-m json -c 500 -w 0.7 -d 3 -u {CHAT}?out=1500",
    "churn-50": f"-m churn -c 50 -w 0.7 -d 3 -a 8 -u {CHAT}?out=1500",
    "post-20mb": f"-m post -c 1 -k 10 -B 20000000 -u {CHAT}?out=1500",
}
QUICK = {
    # Faster, not shorter: a stream costs as much to open as twenty of its chunks.
    "s500-50": stream(250, 100),
    "s500-20-lock": stream(250, 80, more="&lock=1"),
    "json-50": f"-m json -c 50 -w 0.2 -d 1 -u {CHAT}?out=1500",
    "json-500": f"-m json -c 200 -w 0.2 -d 1 -u {CHAT}?out=1500",
    "churn-50": f"-m churn -c 50 -w 0.2 -d 1 -a 8 -u {CHAT}?out=1500",
    "post-20mb": f"-m post -c 1 -k 3 -B 20000000 -u {CHAT}?out=1500",
}

FLOORS = {
    "1": {"go": ("<=", 0.85), "nginx": ("<=", 1.15)},
    "2": {"go_cpu": ("<=", 0.85), "go_p99": ("<=", 0.7)},
    "3": {"go_p50": ("<=", 1.0), "go_p99": ("<=", 1.0), "nginx_p50": ("<=", 1.5)},
    "4": {"go_50": (">=", 1.6), "go_500": (">=", 1.6)},
    "5": {"go": (">=", 0.9)},
    "6": {"kib": ("<=", 8.0), "late_s": ("<=", 0.5), "first_ms": ("<=", 10.0)},
    "7": {"kib": ("<=", 12.0)},
    "8": {"go": ("<=", 1.4)},
    "9": {"p99_ms": ("<=", 2.0)},
    "10": {"p99_ms": ("<=", 5.0)},
    "11": {"all_ms": ("<=", 250.0), "stall_ms": ("<=", 50.0)},
}
TITLES = {
    "1": "CPU per relayed chunk, 500 streams x 50/s",
    "2": "in step, 500 x 20/s: CPU, added p99",
    "3": "added latency, 500 x 50/s",
    "4": "JSON requests/s, 50 and 500 connections",
    "5": "a connection per request, requests/s",
    "6": "held requests: memory, heartbeats, first byte of a new one",
    "7": "memory of an active stream",
    "8": "20 MB POST, CPU",
    "9": "cold: first byte in to push",
    "10": "Ready seen to first byte at the backend",
    "11": "1,000 held requests released",
}


def run(chosen: argparse.Namespace, runners: list[Proxy]) -> Rows:
    """Every workload, interleaved."""
    found: Rows = defaultdict(lambda: defaultdict(list))
    workloads = QUICK if chosen.quick else WORKLOADS
    for rep in range(chosen.reps):
        with Fleet(proxy_cpu=chosen.proxy_cpu, load_cpu=chosen.load_cpu) as ships:
            ships.backend()
            for proxy in runners:
                ships.start(proxy)
                ships.load(proxy, f"-m json -c 20 -w 0.2 -d 0.5 -u {CHAT}?out=1500")
            for name, spec in workloads.items():
                if chosen.only and name not in chosen.only.split(","):
                    continue
                for at in range(len(runners)):
                    proxy = runners[(at + rep) % len(runners)]
                    result = ships.load(proxy, spec)
                    _note(found, name, proxy.name, result)
        if not chosen.only or "hold" in chosen.only.split(","):
            _hold(chosen, runners, found)
        if not chosen.only or "active" in chosen.only.split(","):
            _active(chosen, runners, found)
    return found


def _active(chosen: argparse.Namespace, runners: list[Proxy], found: Rows) -> None:
    """Memory of streams: in a fresh process, whose allocator has nothing left over."""
    count = 500 if chosen.quick else 2000
    for proxy in runners:
        if proxy.command is None or (chosen.quick and proxy.name != "hearth"):
            continue
        with Fleet(proxy_cpu=chosen.proxy_cpu, load_cpu=chosen.load_cpu) as ships:
            ships.backend()
            ships.start(proxy)
            result = ships.load(proxy, stream(count, 20, chunks=60))
            result["kib"] = (result["hwm_kb"] - result["rss0_kb"]) / count
            _note(found, "active", proxy.name, result)


def _hold(chosen: argparse.Namespace, runners: list[Proxy], found: Rows) -> None:
    count, seconds = (1000, 11) if chosen.quick else (10_000, 25)
    for proxy in runners:
        # None of these figures is a ratio.
        if proxy.held is None or (chosen.quick and proxy.name != "hearth"):
            continue
        with Fleet(proxy_cpu=chosen.proxy_cpu, load_cpu=chosen.load_cpu) as ships:
            ships.backend()
            ships.start(proxy, held=True)
            spec = f"-m hold -c {count} -d {seconds} -w 1 -r 1500 -u {CHAT}?n=1 -T 180"
            _note(found, "hold", proxy.name, ships.load(proxy, spec))


def _note(found: Rows, workload: str, proxy: str, result: dict) -> None:
    found[workload][proxy].append(result)
    line = {key: result[key] for key in FIGURES if result.get(key) is not None}
    print(f"{workload:14} {proxy:8} {line}", file=sys.stderr, flush=True)


def report(medians: Medians, found: Rows, table: dict[str, dict[str, float]]) -> None:
    """Medians of each workload, then each floor."""
    for workload, by in found.items():
        key = {"s": "cpu_us_per_chunk", "j": "cpu_us_per_req", "c": "cpu_us_per_req",
               "p": "cpu_ms_per_req", "h": "rss_per_conn_kb", "a": "kib"}[workload[0]]  # fmt: skip
        print(f"\n### {workload}\n\n| proxy | runs | {key} | rps | p50 us | p99 us | errors |")
        print("|---|---|---|---|---|---|---|")
        for name, results in by.items():
            lat = "ttft_us" if workload == "hold" else "lat_us"
            cells = (key, "rps", f"{lat}.p50", f"{lat}.p99", "errors")
            shown = []
            for path in cells:
                try:
                    shown.append(f"{medians.of(workload, name, path):.2f}")
                except KeyError:
                    shown.append("-")
            print(f"| {name} | {len(results)} | {' | '.join(shown)} |")
    print("\n| # | figure | measured | floor | met |\n|---|---|---|---|---|")
    for row, cells in FLOORS.items():
        for name, (sign, floor) in cells.items():
            got = table.get(row, {}).get(name)
            met = "-" if got is None else _met(got, sign, floor)
            shown_got = "not measured" if got is None else got
            print(f"| {row} | {TITLES[row]}: {name} | {shown_got} | {sign} {floor} | {met} |")


def _met(got: float, sign: str, floor: float) -> str:
    return "yes" if (got <= floor if sign == "<=" else got >= floor) else "NO"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--reps", type=int, default=5)
    words.add_argument("--quick", action="store_true", help="about a minute: does it run at all")
    words.add_argument("--only", default="", help="workloads, comma separated; 'cold', 'hold' too")
    words.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=PORT=COMMAND",
        help="one more proxy; {backend} in its command is the backend",
    )
    words.add_argument("--proxy-cpu", default="0")
    words.add_argument("--load-cpu", default="1")
    chosen = words.parse_args()
    # However it is ended, what it started ends too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    if chosen.quick:
        chosen.reps = 1
    fleet.build()
    runners, missing = fleet.proxies(chosen.peer)
    for line in missing:
        print(line, file=sys.stderr)
    found = run(chosen, runners)
    medians = Medians(found)
    peers = [p.name for p in runners if p.name not in ("direct", "hearth")]
    each = [rows(one, peers) for one in medians.of_each()]
    table = rows(medians, peers)
    if not chosen.only or "cold" in chosen.only.split(","):
        cpus = (chosen.proxy_cpu, chosen.load_cpu)
        colds = cold.rows(reps=chosen.reps, quick=chosen.quick, cpus=cpus)
        each += colds
        table.update(cold.medians(colds))
    runs = [r for by in found.values() for results in by.values() for r in results]
    errors = sum(int(r.get("errors") or 0) for r in runs)
    report(medians, found, table)
    table = {row: cells for row, cells in table.items() if cells}
    written = {**table, "reps": chosen.reps, "errors": errors, "spread": spread(each),
               "medians": medians.table(), "missing": missing}  # fmt: skip
    (fleet.OUT / "gateway.json").write_text(json.dumps(written, indent=1) + "\n")
    waked = table.get("wake_50")
    if waked is not None:
        print(f"\n50 services woken at once: the last push after {waked['all_ms']} ms")
    print(f"\nerrors in all runs: {errors}; written to {fleet.OUT / 'gateway.json'}")
    if errors:
        sys.exit(1)


if __name__ == "__main__":
    main()
