"""How the wheel is built: what it looks for before it compiles anything, and what it says."""

import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import unittest
from importlib import metadata
from unittest import mock

SOURCES = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SOURCES))

import wheel_of_ccl  # noqa: E402: after where it is

#: A PyTorch as far as its version, its folder and its ABI are asked for.
FAKE = "__version__ = '0.fake'\nclass _C:\n    _GLIBCXX_USE_CXX11_ABI = True\n"


class Wheel(unittest.TestCase):
    def test_a_pytorch_by_pythonpath_is_found(self):
        python = pathlib.Path(sys.base_prefix) / "bin" / "python3"
        if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
            self.skipTest("the system's own Python has a PyTorch")
        code = f"import sys; sys.path.insert(0, {str(SOURCES)!r}); import wheel_of_ccl as w; print(w.installed_torch())"
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "torch").mkdir()
            (pathlib.Path(folder) / "torch" / "__init__.py").write_text(FAKE)
            environment = dict(os.environ, PYTHONPATH=folder)
            done = subprocess.run([python, "-c", code], env=environment, capture_output=True, text=True)
        self.assertIn("0.fake", done.stdout, done.stderr)
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
        self.assertIn("--no-build-isolation", done.stderr)

    def test_a_pytorch_by_pythonpath_goes_before_an_installed_one(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "torch.py").write_text(FAKE + "__path__ = ['/nowhere']\n")
            with mock.patch.dict(os.environ, PYTHONPATH=folder):
                self.assertEqual(wheel_of_ccl.installed_torch()["version"], "0.fake")

    def test_a_compiler_of_several_words(self):
        torch = dict(folder="/nowhere", cxx11=1)
        with mock.patch.dict(os.environ, CXX="env true"), tempfile.TemporaryDirectory() as folder:
            wheel_of_ccl.compiled(torch, "/nowhere", pathlib.Path(folder))

    def test_headers_of_python_are_asked_for(self):
        with mock.patch.object(sysconfig, "get_paths", return_value=dict(include="/nowhere")):
            with self.assertRaisesRegex(SystemExit, "/nowhere/Python.h"):
                wheel_of_ccl.python_headers()

    def test_tags_say_whether_python_has_its_lock(self):
        python = "cp{}{}".format(*sys.version_info)
        for free, abi in ((0, python), (None, python), (1, python + "t")):
            with mock.patch.object(sysconfig, "get_config_var", return_value=free):
                self.assertTrue(wheel_of_ccl.tag().startswith(f"{python}-{abi}-"), wheel_of_ccl.tag())

    def test_pytorch_finds_the_backend_by_its_entry_point(self):
        with tempfile.TemporaryDirectory() as folder:
            info = wheel_of_ccl.prepare_metadata_for_build_wheel(folder)
            told = metadata.Distribution.at(pathlib.Path(folder) / info).entry_points
        for points in (told, metadata.distribution("ccl_torch").entry_points):
            (point,) = (point for point in points if point.group == "torch.distributed.backends")
            self.assertEqual(point.name, "ccl")
            self.assertTrue(callable(point.load()))
