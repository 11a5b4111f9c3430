"""Runs all tests beside it, or those whose names contain one of the arguments, and ends with the counts."""

import os
import pathlib
import sys
import tempfile
import unittest


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def main(words):
    here = str(pathlib.Path(__file__).resolve().parent)
    found = flat(unittest.defaultTestLoader.discover(here, top_level_dir=here))
    chosen = [test for test in found if not words or any(word in test.id() for word in words)]
    with tempfile.TemporaryDirectory() as folder:
        # Where PyTorch's flight recorder leaves what it knows of groups that fail.
        os.environ["TORCH_FR_DUMP_TEMP_FILE"] = f"{folder}/flight"
        result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(chosen))
    bad = {getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors}
    skipped = {test.id() for test, _ in result.skipped}
    for test in sorted(bad):
        print(f"failed: {test}")
    for test, why in result.skipped:
        print(f"skipped: {test.id()}: {why}")
    print(f"{result.testsRun - len(bad) - len(skipped)} passed, {len(bad)} failed, {len(skipped)} skipped")
    return 0 if chosen and not bad else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
