"""Rows, ratios and tables in Markdown."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from peers.limits import BANDWIDTHS, LATENCIES, TCP_BANDWIDTHS, TCP_LATENCIES, Limits

ROOTED = ("broadcast", "reduce", "gather", "scatter")
REDUCTIONS = ("allreduce", "reduce", "reduce_scatter")
ISSUE_SIZE = 1024  # up to here operations with a root measure how fast calls are issued: nothing holds the root back
ISSUE_RATIO = 1.5


@dataclass(frozen=True, order=True)
class Key:
    """Which row."""

    data: str  # "same" or "fresh"
    ranks: int
    op: str
    size: int


@dataclass
class Row:
    """The microseconds of each library's runs."""

    key: Key
    runs: dict[str, list[float]] = field(default_factory=dict)
    again: bool = False

    def median(self, name: str) -> float:
        return statistics.median(self.runs[name])

    def best(self) -> str:
        """The fastest peer; empty if none was measured, or ccl was not."""
        peers = [name for name in self.runs if name != "ccl"]
        return min(peers, key=self.median) if peers and "ccl" in self.runs else ""

    def ratio(self) -> float:
        """ccl's time to the best peer's."""
        return self.median("ccl") / self.median(self.best())

    def allowed(self) -> float:
        """The largest ratio that is not slower: half of the peer's own spread in this run is noise."""
        peer = self.runs[self.best()]
        noise = 1 + (max(peer) - min(peer)) / statistics.median(peer) / 2
        issue = self.key.op in ROOTED and self.key.size <= ISSUE_SIZE
        return max(noise, ISSUE_RATIO) if issue else noise

    def missed(self) -> bool:
        return self.best() != "" and self.ratio() > self.allowed()


def number(x: float) -> str:
    return f"{x:.0f}" if x >= 1000 else f"{x:.3g}"


def size(count: int) -> str:
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift and count % (1 << shift) == 0:
            return f"{count >> shift} {unit}"
    return f"{count} B"


def cell(times: list[float] | None) -> str:
    if not times:
        return "-"
    middle = number(statistics.median(times))
    return f"{middle} [{number(min(times))}-{number(max(times))}]" if len(times) > 1 else middle


def mean(ratios: Iterable[float]) -> str:
    """The geometric mean."""
    logs = [math.log(ratio) for ratio in ratios]
    return number(math.exp(statistics.fmean(logs))) if logs else "-"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def title(data: str, ranks: int) -> str:
    return f"{ranks} ranks, {'the same data in each call' if data == 'same' else 'data written anew before each call'}"


def results(rows: list[Row], names: list[str]) -> str:
    """A table of all rows for each number of ranks and kind of data."""
    text = ""
    for data, ranks in dict.fromkeys((row.key.data, row.key.ranks) for row in rows):
        of = [row for row in rows if (row.key.data, row.key.ranks) == (data, ranks)]
        shown = [name for name in names if any(name in row.runs for row in of)]
        lines = []
        for row in of:
            verdict = ["-", "-", "-", ""]
            if best := row.best():
                said = ("missed" if row.missed() else "") + (" (2nd time)" if row.again else "")
                verdict = [best, number(row.ratio()), number(row.allowed()), said.strip()]
            lines.append([row.key.op, size(row.key.size), *(cell(row.runs.get(n)) for n in shown), *verdict])
        head = ["operation", "size", *shown, "best peer", "ccl / best", "allowed", ""]
        text += f"### {title(data, ranks)}\n\nMicroseconds.\n\n{table(head, lines)}\n"
    return text


def summary(rows: list[Row]) -> str:
    """Geometric means of the ratios, the worst row and how many missed, for each part and over all."""
    judged = [row for row in rows if row.best()]
    if not judged:
        return "No row has both ccl and a peer.\n"
    parts = dict.fromkeys((row.key.data, row.key.ranks) for row in judged)
    groups = [(title(d, n), [r for r in judged if (r.key.data, r.key.ranks) == (d, n)]) for d, n in parts]
    lines = []
    for name, of in [*groups, ("all", judged)] if len(groups) > 1 else groups:
        worst = max(of, key=lambda row: row.ratio() / row.allowed())
        lines.append(
            [
                name,
                str(len(of)),
                mean(row.ratio() for row in of),
                mean(row.ratio() for row in of if row.key.op in REDUCTIONS),
                f"{worst.key.op} {size(worst.key.size)}: {number(worst.ratio())} to {worst.best()}",
                str(sum(row.missed() for row in of)),
            ]
        )
    head = ["", "rows", "mean ratio", "of reductions", "worst row", "missed"]
    return table(head, lines)


def limits_tables(limits: Limits) -> str:
    named, bandwidths = LATENCIES | TCP_LATENCIES, BANDWIDTHS | TCP_BANDWIDTHS
    latencies = [[text, number(x)] for name, text in named.items() if (x := limits.latency(name)) is not None]
    text = table(["latency", "ns"], latencies) + "\n"
    sizes = sorted({n for name in bandwidths for n in limits.figures.get(name, {})})
    rows = [
        [what, *(number(known[n]) if n in known else "-" for n in sizes)]
        for name, what in bandwidths.items()
        if (known := limits.figures.get(name))
    ]
    return text + table(["bandwidth, 1e9 bytes/s", *map(size, sizes)], rows)


def against_sockets(rows: list[Row], limits: Limits) -> str:
    """ccl's time for two ranks and the same data beside that of plain sockets."""
    lines = []
    for row in rows:
        key = row.key
        if "ccl" not in row.runs or (key.data, key.ranks) != ("same", 2):
            continue
        took, exchange, bytes_take = row.median("ccl"), limits.latency("tcp_exchange"), limits.sockets(key.op, key.size)
        if exchange and (key.size == 0 or key.size == 8 and key.op not in ROOTED):
            lines.append([key.op, size(key.size), number(took), number(exchange / 1e3), f"{took * 1e3 / exchange:.2f}"])
        elif bytes_take and key.size >= 64 << 10:
            lines.append([key.op, size(key.size), number(took), number(bytes_take), f"{took / bytes_take:.2f}"])
    head = ["operation", "size", "ccl, us", "sockets, us", "ccl / sockets"]
    return table(head, lines) if lines else ""


def against_limits(rows: list[Row], limits: Limits) -> str:
    """ccl's time for two ranks and the same data beside the bounds."""
    lines = []
    for row in rows:
        key = row.key
        bounds = limits.bounds(key.op, key.size)
        if "ccl" not in row.runs or (key.data, key.ranks) != ("same", 2):
            continue
        took, exchange = row.median("ccl"), limits.latency("exchange_one_line")
        if exchange and (key.size == 0 or key.size == 8 and key.op not in ROOTED):
            share = f"{took * 1e3 / exchange:.2f} of an exchange"
            lines.append([key.op, size(key.size), number(took), "-", "-", "-", share])
        elif bounds and key.size >= 64 << 10:
            estimate = f"{took / min(bounds.attach, bounds.staged):.2f} of the smaller estimate"
            figures = map(number, (took, bounds.direct, bounds.attach, bounds.staged))
            lines.append([key.op, size(key.size), *figures, estimate])
    head = ["operation", "size", "ccl, us", "direct", "attach", "staged", "ccl takes"]
    return table(head, lines) if lines else ""
