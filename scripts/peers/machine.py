"""The machine: its name and versions, a control group that keeps other work from showing, who used the processors."""

import contextlib
import datetime
import os
import platform
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from peers.libraries import CPUS, say

CGROUPS = Path("/sys/fs/cgroup")


def description() -> list[tuple[str, str]]:
    """What a reader must know about the machine, by name."""
    cpu = field("/proc/cpuinfo", "model name") or platform.machine()
    mem = int((field("/proc/meminfo", "MemTotal") or "0").split()[0]) / (1 << 20)
    compiler = subprocess.run(["cc", "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    return [
        ("Date", datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")),
        ("Processor", f"{cpu}, {CPUS} to use"),
        ("Memory", f"{mem:.0f} GiB"),
        ("Kernel", f"{platform.system()} {platform.release()}"),
        ("C library, compiler", f"{' '.join(platform.libc_ver())}; {compiler}"),
    ]


def field(path: str, name: str) -> str:
    """The first line `name : value` of a file in /proc."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def memory_available() -> int:
    """Bytes."""
    return int((field("/proc/meminfo", "MemAvailable") or "0").split()[0]) * 1024


@contextlib.contextmanager
def preferred() -> Iterator[str]:
    """Puts this process, and what it starts, into a CPU control group of high weight, and takes it back at the end.

    Gives a sentence on how that went. Without it any other work shows in every figure; a low `nice` does not help where
    the kernel shares by session.
    """
    name = f"ccl-bench-{os.getpid()}"
    v1 = CGROUPS / "cpu" / "cpu.shares"
    place = (v1.parent if v1.exists() else CGROUPS) / name
    weight, value = ("cpu.shares", "262144") if v1.exists() else ("cpu.weight", "10000")
    before = place.parent / own_group(v1.exists())
    try:
        place.mkdir()
    except OSError as error:
        yield f"No CPU control group could be made ({error.strerror}): other work on the machine shows."
        return
    try:
        try:
            (place / weight).write_text(value)
            (place / "cgroup.procs").write_text(str(os.getpid()))
            told = f"Everything ran in a CPU control group with {weight} {value}."
        except OSError as error:
            told = f"The CPU control group was of no use ({error.strerror}): other work on the machine shows."
        yield told
    finally:
        with contextlib.suppress(OSError):
            (before / "cgroup.procs").write_text(str(os.getpid()))
        remove(place)


def remove(group: Path) -> None:
    """Removes the control group, and first ends what a launcher that had to be ended left in it."""
    for _ in range(50):
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)
    say(f"{group} could not be removed")


def own_group(v1: bool) -> str:
    """The CPU control group of this process, relative to the root."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if ("cpu" in controllers.split(",")) if v1 else not controllers:
            return path.lstrip("/")
    return ""


@dataclass
class Load:
    """Processor time since this was made: of all, and of the processes that this one has waited for, in seconds."""

    busy: float = 0
    ours: float = 0
    began: float = 0

    def __post_init__(self) -> None:
        self.busy, self.ours, self.began = self.now()

    @staticmethod
    def now() -> tuple[float, float, float]:
        user, nice, system, _idle, _wait, irq, soft, *_ = map(int, Path("/proc/stat").read_text().split()[1:9])
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")
        return busy, children.ru_utime + children.ru_stime, time.monotonic()

    def others_percent(self) -> float:
        """The share of the processors' time that went to others."""
        busy, ours, clock = self.now()
        cpus = os.cpu_count() or 1
        return max(0.0, (busy - self.busy) - (ours - self.ours)) / max(1e-9, (clock - self.began) * cpus) * 100


def lines(command: list[str], environment: dict[str, str], limit_s: float) -> tuple[list[str], str]:
    """What the command prints, and what went wrong, if anything did. It is ended after `limit_s`, with all it started.

    Output goes to files, as processes that outlive a launcher would keep a pipe open.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        env = dict(os.environ, **environment)
        process = subprocess.Popen(command, env=env, stdout=out, stderr=err, start_new_session=True)
        wrong = ""
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            wrong = f"ended after {limit_s:.0f} s; "
        finally:
            end(process)
        out.seek(0)
        err.seek(0)
        printed = out.read().splitlines()
        if wrong or status != 0:
            wrong += f"status {process.returncode}: {' '.join(err.read().split())[-300:]}"
        return printed, wrong


def end(process: subprocess.Popen) -> None:
    """Ends what is left of the process's session, first in peace."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
