"""The machine's limits, and the bounds on collectives between two ranks that follow from them."""

import math
from dataclasses import dataclass

from peers.machine import lines

CHUNK = 512 << 10  # of a ring in shared memory; of the measured sizes the fastest to hand over

LATENCIES = {
    "exchange_one_line": "exchange of a cache line: both write their part of one line and wait for the other's",
    "exchange_own_lines": "the same with a line for each",
    "line_one_way": "one cache line, written in turn, one way",
    "yield_one_way": "`sched_yield` to the other process on the same processor, one way",
}
BANDWIDTHS = {
    "copy": "copy, each of both processors",
    "read": "read",
    "write": "write",
    "add": "add (c = a + b)",
    "add_nt": "add, non-temporal stores",
    "xcopy": "copy of what the other has just written",
    "xadd": "add of it",
    "xwrite": "write over what the other has just read",
    "readv": "`process_vm_readv`, each of both at once",
    "readv_fresh": "of what the other has just written, one at a time",
}

TCP_LATENCIES = {
    "tcp_exchange": "both write 8 bytes and wait for the other's",
    "tcp_one_way": "8 bytes there and back, one way",
}
TCP_BANDWIDTHS = {
    "tcp_stream": "from one process to the other",
    "tcp_both": "each way, both at once",
}


@dataclass
class Bounds:
    """Microseconds that a call takes at least, or about."""

    direct: float  # each rank can address the other's buffers: a lower bound
    attach: float  # an estimate with process_vm_readv
    staged: float  # an estimate with a ring in shared memory


class Limits:
    """What benches/peers/limits.c or sockets.c measured: figures by name and bytes."""

    def __init__(self, command: list[str]):
        self.figures: dict[str, dict[int, float]] = {}
        printed, self.wrong = lines(command, {}, 180)
        for line in printed:
            name, size, figure = line.split(",")
            self.figures.setdefault(name, {})[int(size)] = float(figure)

    def latency(self, name: str) -> float | None:
        """In nanoseconds."""
        return self.figures.get(name, {}).get(0)

    def rate(self, name: str, size: float) -> float:
        """In 1e9 bytes/s at any size: between the measured ones on a logarithmic scale. 0 where none was measured."""
        known = sorted(self.figures.get(name, {}).items())
        if not known:
            return 0
        below = [point for point in known if point[0] <= size] or known[:1]
        above = [point for point in known if point[0] >= size] or known[-1:]
        (x0, y0), (x1, y1) = below[-1], above[0]
        return y0 if x0 == x1 else y0 + (y1 - y0) * math.log(size / x0) / math.log(x1 / x0)

    def sockets(self, op: str, size: int) -> float | None:
        """Microseconds that two ranks' bytes take on one connection, whatever is done with them."""
        one_way = op in ("broadcast", "reduce", "gather", "scatter")
        moved = size if op in ("allreduce", "broadcast", "reduce") else size / 2
        rate = self.rate("tcp_stream" if one_way else "tcp_both", moved)
        return moved / rate / 1e3 if rate and op != "barrier" else None

    def bounds(self, op: str, size: int) -> Bounds | None:
        """Of a call of two ranks with a processor each.

        Every input byte is read and every output byte written once, by whichever processor: the work may be split
        evenly. Staged estimates count a sender's reading and writing and a receiver's part one after the other, but the
        larger only where messages go one way.
        """
        if "readv" not in self.figures or "add" not in self.figures or op == "barrier":
            return None
        half = size / 2

        def time(name: str, bytes_: float) -> float:
            return bytes_ / self.rate(name, bytes_) / 1e3 if bytes_ else 0

        def add(bytes_: float) -> float:
            return min(time(name, bytes_) for name in ("add", "add_nt") if name in self.figures)

        def copy(bytes_: float) -> float:
            return time("copy", bytes_)

        def readv(bytes_: float) -> float:
            return time("readv", bytes_)

        def handed(name: str, bytes_: float) -> float:
            return bytes_ / self.rate(name, min(CHUNK, bytes_)) / 1e3

        def put(bytes_: float) -> float:
            return time("read", bytes_) + handed("xwrite", bytes_)

        def got(bytes_: float) -> float:
            return handed("xcopy", bytes_)

        def added(bytes_: float) -> float:
            return handed("xadd", bytes_)

        one_way = op in ("broadcast", "reduce", "gather", "scatter")
        start = (self.latency("line_one_way" if one_way else "exchange_one_line") or 0) / 1e3
        exchanged = (copy(size), readv(half) + copy(half), put(half) + got(half) + copy(half))
        found = {
            "allreduce": (
                min(add(size), copy(size)),
                2 * readv(half) + add(half),
                put(half) + added(half) + handed("xwrite", half) + got(half),
            ),
            "broadcast": (copy(half), readv(half), max(put(size), got(size))),
            "reduce": (add(half), 1.5 * readv(half) + add(half), max(put(size), added(size))),
            "reduce_scatter": (add(half), readv(half) + add(half), put(half) + added(half)),
            "allgather": exchanged,
            "gather": (copy(half), readv(half / 2) + copy(half) / 2, max(put(half), got(half) + copy(half))),
            "scatter": (copy(half), readv(half / 2) + copy(half) / 2, max(put(half) + copy(half), got(half))),
            "alltoall": exchanged,
            "alltoallv": exchanged,
        }[op]
        return Bounds(*(start + us for us in found))
