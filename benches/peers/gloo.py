"""collectives.c with Gloo, through torch.distributed: the same options, loop and output.

allreduce and reduce are in place, as torch has no other form of them. Starts its ranks on loopback by itself.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from datetime import timedelta

MOST_CALLS = 1 << 20


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=2)
    parser.add_argument("-o", required=True)
    parser.add_argument("-s", required=True)
    parser.add_argument("-t", type=float, default=10)
    parser.add_argument("-w", type=int, default=3)
    parser.add_argument("-T", type=float, default=60)
    parser.add_argument("-f", action="store_true")
    return parser.parse_args()


def start(ranks: int) -> int:
    """Starts this program once for each rank; the exit status is that of one that failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    settings = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment = dict(os.environ, **shared, **settings)
    started = [subprocess.Popen([sys.executable, *sys.argv], env=dict(environment, RANK=str(r))) for r in range(ranks)]
    return max(abs(process.wait()) for process in started)


def run(args: argparse.Namespace) -> None:
    """One rank's part."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    me, n = int(os.environ["RANK"]), args.n
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    sizes = [int(size) for size in args.s.split(",")]
    room = max(sizes) // 4 + n
    send, recv = torch.empty(room), torch.empty(room)
    index = torch.arange(room) % 61
    number = torch.zeros(1, dtype=torch.float64)

    def greatest(x: float) -> float:
        number[0] = x
        dist.all_reduce(number, op=dist.ReduceOp.MAX)
        return float(number[0])

    def measure(op: str, size: int) -> None:
        whole = op in ("allreduce", "broadcast", "reduce")
        block = max(1, size // 4 // n)
        vector = size // 4 if whole else block * n
        s, r, of_s, of_r = send[:vector], recv[:vector], send[:block], recv[:block]
        blocks_s, blocks_r, counts = list(s.split(block)), list(r.split(block)), [block] * n
        root = me == 0
        calls = {
            "allreduce": lambda: dist.all_reduce(r),
            "broadcast": lambda: dist.broadcast(s if root else r, 0),
            "reduce": lambda: dist.reduce(r, 0),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(of_r, s),
            "allgather": lambda: dist.all_gather_into_tensor(r, of_s),
            "gather": lambda: dist.gather(of_s, blocks_r if root else None, 0),
            "scatter": lambda: dist.scatter(of_r, blocks_s if root else None, 0),
            "alltoall": lambda: dist.all_to_all_single(r, s),
            "alltoallv": lambda: dist.all_to_all_single(r, s, counts, counts),
            "barrier": dist.barrier,
        }
        call = calls[op]

        def right() -> bool:
            mine, total = index[me * block : (me + 1) * block], n * (n + 1) // 2
            everyones = [index[:block] + rank + 1 for rank in range(n)]
            exchanged = [mine + rank + 1 for rank in range(n)]
            wanted = {
                "allreduce": [index[:vector] * n + total],
                "reduce": [index[:vector] * n + total] if root else [],
                "broadcast": [] if root else [index[:vector] + 1],
                "reduce_scatter": [mine * n + total],
                "allgather": everyones,
                "gather": everyones if root else [],
                "scatter": [mine + 1],
                "alltoall": exchanged,
                "alltoallv": exchanged,
                "barrier": [],
            }[op]
            got = recv.split(vector if whole else block)
            return all(torch.equal(g, w.float()) for g, w in zip(got, wanted))

        in_place = r if op in ("allreduce", "reduce") else of_s if op in ("allgather", "gather") else s

        def window(count: int) -> float:
            dist.barrier()
            begin = time.perf_counter()
            for i in range(count):
                if args.f:
                    in_place.fill_(i & 63)
                call()
            took = greatest(time.perf_counter() - begin)
            if args.f:
                dist.barrier()
                begin = time.perf_counter()
                for i in range(count):
                    in_place.fill_(i & 63)
                took -= greatest(time.perf_counter() - begin)
            return max(took, 1e-9 * count)

        send[:vector] = index[:vector] + me + 1
        recv[:vector] = send[:vector] if whole and op != "broadcast" else -1
        call()
        if greatest(not right()) > 0:
            sys.exit(f"{op} of {size} bytes: the result is wrong")
        count, windows = 1, args.w
        while (took := window(count)) < args.t / 4e3 and count < MOST_CALLS:
            count *= 2
        if count == 1 and took > args.t / 1e3:
            windows = 1
        count = min(max(1, round(count * args.t / 1e3 / took)), MOST_CALLS)
        us = statistics.median([window(count) / count * 1e6 for _ in range(windows)])
        if root:
            print(f"{op},{size},{us:.4f}", flush=True)

    began = time.perf_counter()
    for op in args.o.split(","):
        for size in [0] if op == "barrier" else sizes:
            if greatest(time.perf_counter() - began) < args.T:
                measure(op, size)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    ARGS = arguments()
    if "RANK" in os.environ:
        run(ARGS)
    else:
        sys.exit(start(ARGS.n))
