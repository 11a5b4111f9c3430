"""Builds the wheel of ccl_torch, as pip asks for it (PEP 517): a C++ module for the installed PyTorch, libccl.so, and
its plugin for InfiniBand and RoCE.

The C++ interface of PyTorch's process groups is another one in each version, so that a wheel is for one version. CXX
names the compiler, CCL_LIBRARY a libccl.so that is there already, beside which the plugin may be; else Cargo builds them.
"""

import base64
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
NAME = "ccl_torch"
VERBS = "libccl_net_verbs.so"
#: Where PyTorch looks for backends that it does not know.
ENTRY_POINTS = f"[torch.distributed.backends]\nccl = {NAME}:_registered\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    torch, headers = installed_torch(), python_headers()
    version = ccl_version()
    info = f"{NAME}-{version}.dist-info"
    built, verbs = libraries()
    files = {f"{NAME}/{path.name}": path.read_bytes() for path in (HERE / NAME).glob("*.py")}
    files[f"{NAME}/_build.py"] = f'"""What the module was built for."""\n\nTORCH = "{torch["version"]}"\n'.encode()
    with tempfile.TemporaryDirectory() as folder:
        files[f"{NAME}/_C.so"] = compiled(torch, headers, pathlib.Path(folder)).read_bytes()
    files[f"{NAME}/libccl.so.0"] = built.read_bytes()
    if verbs:
        files[f"{NAME}/{VERBS}"] = verbs.read_bytes()
    for text in ROOT.glob("LICENSE-*"):
        files[f"{info}/licenses/{text.name}"] = text.read_bytes()
    files[f"{info}/METADATA"] = metadata().encode()
    files[f"{info}/entry_points.txt"] = ENTRY_POINTS.encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: false\nTag: {tag()}\n".encode()
    name = f"{NAME}-{version}-{tag()}.whl"
    write_wheel(pathlib.Path(wheel_directory) / name, files, f"{info}/RECORD")
    return name


def tag():
    python = "cp{}{}".format(*sys.version_info)
    # Python without its lock has another ABI.
    abi = python + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    return f"{python}-{abi}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Spares pip a build for the metadata alone."""
    info = f"{NAME}-{ccl_version()}.dist-info"
    folder = pathlib.Path(metadata_directory) / info
    folder.mkdir()
    (folder / "METADATA").write_text(metadata())
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
    return info


def metadata():
    # PyTorch is not among what it requires: pip would fetch all that PyTorch requires, gigabytes of CUDA's, where
    # somebody has chosen to do without. An import checks the version.
    return (
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {ccl_version()}\nSummary: PyTorch's collectives over ccl\n"
        "License: Apache-2.0 OR MIT\nRequires-Python: >=3.9\n"
    )


def installed_torch():
    """Version, folder and flags of the PyTorch that programs import."""
    ask = (
        "import json, torch; print(json.dumps(dict(version=torch.__version__, "
        "folder=torch.__path__[0], cxx11=int(torch._C._GLIBCXX_USE_CXX11_ABI))))"
    )
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    # In a build that is not isolated it is that of this environment, which may come by PYTHONPATH, as from environment modules.
    # Where pip isolates the build there is none; then it is the one outside.
    for environment in (None, outside):
        asked = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True)
        if asked.returncode == 0:
            return json.loads(asked.stdout.splitlines()[-1])
    raise SystemExit(
        f"ccl_torch is built against the PyTorch that is installed, but {sys.executable} cannot import torch: "
        f"install it first; if it comes by PYTHONPATH, or is there and the build is isolated (uv), give "
        f"--no-build-isolation (build: --no-isolation).\n{asked.stderr}"
    )


def ccl_version():
    header = (ROOT / "include" / "ccl.h").read_text()
    return ".".join(header.split(f"#define CCL_{part} ")[1].split()[0] for part in ("MAJOR", "MINOR", "PATCH"))


def python_headers():
    folder = sysconfig.get_paths()["include"]
    if not (pathlib.Path(folder) / "Python.h").exists():
        raise SystemExit(f"there is no {folder}/Python.h: install Python's headers (python3-dev or python3-devel)")
    return folder


def compiled(torch, headers, folder):
    """The module, in `folder`."""
    cxx = shlex.split(os.environ.get("CXX", "c++"))
    torch_at = pathlib.Path(torch["folder"])
    flags = ["-O2", "-std=c++20", "-fPIC", "-fvisibility=hidden", f"-D_GLIBCXX_USE_CXX11_ABI={torch['cxx11']}"]
    flags += ["-DTORCH_EXTENSION_NAME=_C", f"-I{ROOT / 'include'}"]
    folders = [headers, torch_at / "include", torch_at / "include/torch/csrc/api/include"]
    flags += [word for path in folders for word in ("-isystem", str(path))]

    def compile_one(source):
        made = folder / f"{source.stem}.o"
        run([*cxx, *flags, "-c", str(source), "-o", str(made)])
        return str(made)

    workers = len(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        objects = list(pool.map(compile_one, sorted((HERE / "src").glob("*.cpp"))))
    module = folder / "_C.so"
    libraries = ["-lc10", "-ltorch_cpu", "-ltorch_python", "-ltorch", "-ldl", "-lpthread"]
    run([*cxx, "-shared", "-s", *objects, f"-L{torch_at / 'lib'}", *libraries, "-o", str(module)])
    return module


def libraries():
    """libccl.so, and the plugin if there is one."""
    named = os.environ.get("CCL_LIBRARY")
    if named:
        if not os.path.isabs(named):
            raise SystemExit(f"CCL_LIBRARY is {named}: a build needs the whole path")
        verbs = pathlib.Path(named).parent / VERBS
        return pathlib.Path(named), verbs if verbs.exists() else None
    words = ["build", "--release", "--lib", "--package=ccl", "--package=ccl-net-verbs"]
    words.append("--message-format=json-render-diagnostics")
    told = run(["cargo", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
    made = [file for line in told.splitlines() for file in json.loads(line).get("filenames", [])]
    return [pathlib.Path(next(file for file in made if file.endswith(f"/{name}"))) for name in ("libccl.so", VERBS)]


def run(words, **options):
    try:
        return subprocess.run(words, check=True, **options)
    except FileNotFoundError:
        raise SystemExit(f"there is no {words[0]}: ccl_torch needs a C++ compiler, and Cargo unless CCL_LIBRARY is set")
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{shutil.which(words[0])} failed with status {error.returncode}")


def write_wheel(path, files, record):
    lines = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
        wheel.writestr(record, "".join([*lines, f"{record},,\n"]))
