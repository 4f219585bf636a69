"""Run the tests on the oldest and newest supported versions; arguments are Python versions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from environment import ROOT, provide

CORNERS = {"3.11": "5.2", "3.12": "6.0", "3.13": "6.1"}


def main(versions: list[str]) -> int:
    """Run the combinations, print the result of each, and return 1 if one failed."""
    outcomes = {version: run_corner(version) for version in versions or CORNERS}
    print("\nMatrix:")
    for version, outcome in outcomes.items():
        print(f"  Python {version}, Django {CORNERS[version]}: {outcome}")
    is_complete = os.environ.get("CI") != "true" or "NOT RUN" not in "".join(outcomes.values())
    return 0 if is_complete and "failed" not in outcomes.values() else 1


def run_corner(version: str) -> str:
    django = CORNERS[version]
    interpreter = interpreter_for(version)
    if interpreter is None:
        print(f"\n!!! NOT RUN: there is no Python {version} here.", flush=True)
        return "NOT RUN, no such Python here"
    print(f"\n=== Python {version}, Django {django}", flush=True)
    directory = ROOT / ".matrix" / f"python{version}-django{django}"
    python = provide(directory, "test", f"django~={django}.0", interpreter=interpreter)
    command = [str(python), "-m", "tests.support.suite"]
    ended = subprocess.run(command, cwd=ROOT, check=False)
    return "failed" if ended.returncode else "passed"


def interpreter_for(version: str) -> str | None:
    """Return a Python of that version from PATH or from pyenv."""
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    candidates = [shutil.which(f"python{version}"), shutil.which("python3"), *map(str, installed)]
    return next((path for path in candidates if path and is_version(path, version)), None)


def is_version(python: str, version: str) -> bool:
    # Run it: pyenv has a shim on PATH even for versions that it then refuses to run.
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    answer = subprocess.run([python, "-c", question], capture_output=True, text=True, check=False)
    return answer.stdout.strip() == version


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
