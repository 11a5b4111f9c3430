"""PyTorch's collectives over ccl, for host memory.

    import torch.distributed as dist
    import ccl_torch

    dist.init_process_group("ccl")

Newer versions of PyTorch, 2.15 for one, find an installed ccl_torch without the import.

A receive that nobody answers within the group's timeout fails the whole group: one that may stay open for long wants a
group of its own, `dist.new_group(timeout=...)`.

The library is the file that the environment variable CCL_LIBRARY names, else the one that came with this package.
"""

import atexit
import multiprocessing.util
import os
import pathlib
import sys
import threading

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from . import _build

if torch.__version__ != _build.TORCH:
    raise ImportError(
        f"ccl_torch was built for PyTorch {_build.TORCH}, but this is {torch.__version__}, whose interface differs: "
        "build it again with `pip install --force-reinstall --no-deps ./python` in ccl's sources"
    )

from . import _C  # noqa: E402: only of the same version

__all__ = []


def _open():
    """Opens the first library that there is; one that was named must be good."""
    named = os.environ.get("CCL_LIBRARY")
    beside = pathlib.Path(__file__).with_name("libccl.so.0")
    places = [named] if named else [str(beside)] * beside.exists() + ["libccl.so.0"]
    why = []
    for place in places:
        failure = _C.open_library(place)
        if not failure:
            return
        why.append(failure)
    raise ImportError(
        "ccl_torch finds no libccl.so that it can use: "
        + "; ".join(why)
        + ". Set CCL_LIBRARY to one that fits, or install ccl_torch again"
    )


def _check_name():
    """Another package's backend of the name, as Intel's bindings of oneCCL have one, is not taken over in silence."""
    other = getattr(dist.Backend, "_plugins", {}).get("CCL")
    module = getattr(getattr(other, "creator_fn", other), "__module__", None)
    if other is not None and module != __name__:
        raise ImportError(
            f"the name ccl is that of a backend of {module or 'another package'}, which is imported already: "
            "a process can have one of them alone"
        )


def _timeout(options, backend_options):
    """One that was given for the group, else the one in `pg_options` if they are ccl's; those of another backend of the group are for that one."""
    if options.timeout != default_pg_timeout:
        return options.timeout
    if getattr(backend_options, "backend", None) == "ccl" and backend_options._timeout != default_pg_timeout:
        return backend_options._timeout
    return options.timeout


def _leave_at_the_end():
    """A process of multiprocessing's ends without atexit, unless it was spawned: it leaves as the last thing there."""
    global _leaves
    is_child = multiprocessing.parent_process() is not None and not _is_spawned()
    if is_child and _leaves != os.getpid():
        _leaves = os.getpid()
        multiprocessing.util.Finalize(None, _leave_after_all, exitpriority=-1000)


def _is_spawned():
    """What is forked from a spawned process has its command line, but not its way of starting, which a program may set anew."""
    own = getattr(multiprocessing.current_process(), "_start_method", None)  # one of a context's own
    has_its_command_line = "--multiprocessing-fork" in getattr(sys, "orig_argv", ())
    return has_its_command_line and (own or multiprocessing.get_start_method()) == "spawn"


def _leave_after_all():
    """Threads that may still use the groups are waited for, as multiprocessing does after this, and after it has told what failed."""
    me = threading.current_thread()
    others = any(thread is not me and not thread.daemon for thread in threading.enumerate())
    if others and _fails():
        return
    try:
        if others:
            threading._shutdown()
    finally:
        _C.leave_all()


def _fails():
    """Whether the process ends by an error."""
    why = sys.exc_info()[1]
    return why is not None and not (isinstance(why, SystemExit) and why.code in (None, 0))


def _create(options, backend_options=None):
    """A group's backend: all its ranks call it."""
    _leave_at_the_end()
    return _C.create(
        options.store,
        options.group_rank,
        options.group_size,
        _timeout(options, backend_options),
        options.group_id,
        list(options.global_ranks_in_group),
    )


def _registered():
    """What PyTorch calls when it has imported this package for a group of ccl's: the import has registered the backend."""


#: The process of multiprocessing's that leaves at its end.
_leaves = None
_check_name()
_open()
dist.Backend.register_backend("ccl", _create, extended_api=True, devices=["cpu"])
# Threads of the backend's may call Python, which must not be after its end.
atexit.register(_C.leave_all)
