#!/usr/bin/env python3
"""Writes the files of own/: algorithms in MSCCL's XML, right ones and, in own/broken/, each with one mistake."""

import pathlib
import re


class Block:
    """A thread block; its steps are added in order."""

    def __init__(self, send=-1, recv=-1, chan=0):
        self.send, self.recv, self.chan, self.steps = send, recv, chan, []

    def add(self, kind, src=("i", -1), dst=("o", -1), cnt=1, dep=(-1, -1), hasdep=0):
        self.steps.append((kind, src, dst, cnt, dep, hasdep))
        return self


def xml(name, coll, ranks, chunks, gpus, places, proto="Simple", note=None):
    """The text of an algorithm; gpus has, for each rank, chunks of input, output and scratch, and blocks."""
    lines = [
        f'<algo name="{name}" proto="{proto}" nchannels="1" nchunksperloop="{chunks}" ngpus="{ranks}" coll="{coll}" '
        f'inplace="{int("i" in places)}" outofplace="{int("o" in places)}" minBytes="0" maxBytes="0">'
    ]
    if note:
        lines.insert(0, f"<!-- {note} -->")
    for rank, (held, blocks) in enumerate(gpus):
        lines.append(f'  <gpu id="{rank}" i_chunks="{held[0]}" o_chunks="{held[1]}" s_chunks="{held[2]}">')
        for number, block in enumerate(blocks):
            lines.append(f'    <tb id="{number}" send="{block.send}" recv="{block.recv}" chan="{block.chan}">')
            for s, (kind, src, dst, cnt, dep, hasdep) in enumerate(block.steps):
                lines.append(
                    f'      <step s="{s}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1]}" dstbuf="{dst[0]}" '
                    f'dstoff="{dst[1]}" cnt="{cnt}" depid="{dep[0]}" deps="{dep[1]}" hasdep="{hasdep}"/>'
                )
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return "\n".join(lines + ["</algo>", ""])


def ring_all_reduce(n):
    """Reduce-scatter and all-gather around a ring, in place: one block a rank."""
    gpus = []
    for r in range(n):
        at = lambda k: ("i", (r + n - k) % n)
        block = Block(send=(r + 1) % n, recv=(r - 1) % n).add("s", at(0), at(0))
        for k in range(1, n - 1):
            block.add("rrs", at(k), at(k))
        block.add("rrcs", at(n - 1), at(n - 1))
        for k in range(n, 2 * n - 2):
            block.add("rcs", at(k), at(k))
        block.add("r", at(2 * n - 2), at(2 * n - 2))
        gpus.append(((n, 0, 0), [block]))
    return xml(f"ring {n}", "allreduce", n, n, gpus, "i")


def all_pairs_all_reduce(n):
    """Each rank reduces a chunk that all others send it, and sends it to all: a block for each peer."""
    gpus = []
    for r in range(n):
        peers = [p for p in range(n) if p != r]
        reducer, blocks = Block(), []
        for k, p in enumerate(peers):
            block = Block(send=p, recv=p).add("s", ("i", p)).add("r", dst=("s", k), hasdep=1)
            block.add("s", ("i", r), dep=(0, 2 * len(peers) - 2)).add("r", dst=("i", p))
            blocks.append(block)
        # The waits for all but one are of steps that do nothing else.
        for k in range(1, len(peers)):
            reducer.add("nop", cnt=0, dep=(k + 1, 1))
        for k in range(len(peers)):
            last = k == len(peers) - 1
            reducer.add("re", ("s", k), ("i", r), dep=(1, 1) if k == 0 else (-1, -1), hasdep=int(last))
        gpus.append(((n, 0, len(peers)), [reducer] + blocks))
    return xml(f"all-pairs {n}", "allreduce", n, n, gpus, "i", "LL")


def recursive_all_gather(n):
    """What each rank has doubles in each round, for n a power of two: a block for each round's peer."""
    gpus = []
    for r in range(n):
        blocks = [Block().add("cpy", ("i", 0), ("o", r), hasdep=1)]
        size, before = 1, 0
        while size < n:
            p, mine = r ^ size, r & ~(size - 1)
            block = Block(send=p, recv=p, chan=0)
            block.add("s", ("o", mine), cnt=size, dep=(before, 0 if before == 0 else 1))
            block.add("r", dst=("o", mine ^ size), cnt=size, hasdep=1)
            if before:
                # What this round sends came in all rounds before.
                block.steps.insert(0, ("nop", ("i", -1), ("o", -1), 0, (0, 0), 0))
                block.steps[1] = block.steps[1][:4] + ((before, 1 if before == 1 else 2),) + block.steps[1][5:]
            blocks.append(block)
            before, size = before + 1, 2 * size
        gpus.append(((1, n, 0), blocks))
    return xml(f"recursive {n}", "allgather", n, n, gpus, "o", "LL128")


def ring_reduce_scatter(n, f):
    """Around a ring, with f chunks of a block, for calls of both kinds."""
    gpus = []
    for r in range(n):
        at = lambda k: ("i", (r + 2 * n - 1 - k) % n * f)
        block = Block(send=(r + 1) % n, recv=(r - 1) % n).add("s", at(0), cnt=f)
        for k in range(1, n - 1):
            block.add("rrs", at(k), cnt=f)
        block.add("rrc", at(n - 1), ("o", 0), cnt=f)
        gpus.append(((n * f, f, 0), [block]))
    return xml(f"ring {n}", "reducescatter", n, n * f, gpus, "io")


def direct_all_to_all(n, f):
    gpus = []
    for r in range(n):
        blocks = [Block().add("cpy", ("i", r * f), ("o", r * f), cnt=f)]
        for p in (p for p in range(n) if p != r):
            blocks.append(Block(send=p, recv=p).add("s", ("i", p * f), cnt=f).add("r", dst=("o", p * f), cnt=f))
        gpus.append(((n * f, n * f, 0), blocks))
    return xml(f"direct {n}", "alltoall", n, n * f, gpus, "o")


def chain_broadcast(n, chunks):
    """From rank 0 on, chunk by chunk."""
    gpus = []
    for r in range(n):
        send, recv = (r + 1 if r + 1 < n else -1), r - 1
        block, copier = Block(send=send, recv=recv), Block()
        for c in range(chunks):
            if r == 0:
                block.add("s", ("i", c))
                copier.add("cpy", ("i", c), ("o", c))
            else:
                block.add("rcs" if send >= 0 else "r", dst=("o", c))
        gpus.append(((chunks, chunks, 0), [block] + ([copier] if r == 0 else [])))
    return xml(f"chain {n}", "broadcast", n, chunks, gpus, "o", "LL")


def changed(text, note, edits):
    """The text with a note in front, and lines changed: (which rank, block and step, a pattern, what is there instead)."""
    lines, at, done = [], [None, None, None], 0
    for line in text.splitlines():
        for depth, tag in enumerate(('<gpu id="', '<tb id="', '<step s="')):
            if tag in line:
                at[depth] = int(line.split(tag)[1].split('"')[0])
        for where, old, new in edits:
            if "<step" in line and tuple(at) == where or "<tb" in line and (*at[:2], None) == where:
                assert re.search(old, line), (where, old, line)
                line, done = re.sub(old, new, line), done + 1
        lines.append(line)
    assert done == len(edits), (note, done)
    return "\n".join([f"<!-- {note} -->"] + lines + [""])


def main():
    own = pathlib.Path(__file__).parent / "own"
    (own / "broken").mkdir(parents=True, exist_ok=True)
    ring, pairs = ring_all_reduce(4), all_pairs_all_reduce(4)
    gather, scatter = recursive_all_gather(8), ring_reduce_scatter(4, 2)
    files = {
        "ring-allreduce-4": ring,
        "all-pairs-allreduce-4": pairs,
        "recursive-allgather-8": gather,
        "ring-reducescatter-4": scatter,
        "direct-alltoall-4": direct_all_to_all(4, 2),
        "chain-broadcast-4": chain_broadcast(4, 6),
        "broken/wrong-chunk": changed(
            ring, "rank 1 passes on another chunk than it received", [((1, 0, 1), 'srcoff="0"', 'srcoff="2"')]
        ),
        "broken/wrong-peer": changed(ring, "rank 2 sends to rank 1", [((2, 0, None), 'send="3"', 'send="1"')]),
        "broken/not-reduced": changed(
            ring, "rank 3 copies where it should reduce", [((3, 0, 3), 'type="rrcs"', 'type="rcs"')]
        ),
        "broken/no-wait": changed(
            pairs, "rank 0 sends the sum to rank 1 before it is one", [((0, 1, 2), 'depid="0" deps="4"', 'depid="-1" deps="-1"')]
        ),
        "broken/never-told": changed(
            pairs, "nobody is told that rank 2 has its sum", [((2, 0, 4), 'hasdep="1"', 'hasdep="0"')]
        ),
        "broken/circle": changed(
            gather,
            "in its first round each of ranks 0 and 1 receives before it sends",
            [((r, 1, s), *edit) for r in (0, 1) for s, edit in enumerate((
                (r'type="s".*', f'type="r" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="{1 - r}" cnt="1" depid="0" deps="0" hasdep="0"/>'),
                (r'type="r".*', f'type="s" srcbuf="o" srcoff="{r}" dstbuf="o" dstoff="{r}" cnt="1" depid="-1" deps="-1" hasdep="1"/>'),
            ))],
        ),
        "broken/lengths": changed(
            scatter, "rank 1 receives one chunk where rank 0 sends two", [((1, 0, 1), 'cnt="2"', 'cnt="1"')]
        ),
        "broken/outside": changed(
            scatter, "rank 2 stores behind the end of its output", [((2, 0, 3), 'dstoff="0"', 'dstoff="1"')]
        ),
        "broken/one-place": changed(
            direct_all_to_all(4, 2),
            "two blocks of rank 0 store into the same place",
            [((0, 2, 1), 'dstoff="4"', 'dstoff="2"')],
        ),
    }
    for name, text in files.items():
        (own / f"{name}.xml").write_text(text)


main()
