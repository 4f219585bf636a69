"""Create a virtual environment, and install the checkout with one dependency group into it.

It needs only Python, because it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Create the environment that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("group")
    options = parser.parse_args()
    try:
        provide(options.directory, options.group)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{options.directory} could not be created: {error}", file=sys.stderr)
        return 1
    return 0


def provide(directory: Path, group: str, *extra: str, interpreter: str = sys.executable) -> Path:
    """Create or update the environment and return its Python; *extra* are requirements."""
    python = directory / "bin" / "python"
    print(f"Preparing {directory} (group {group}).", flush=True)
    uv = shutil.which("uv")
    if not works(python):
        create(directory, interpreter, uv)
    if uv:
        installer = [uv, "pip", "install", "--python", str(python)]
    else:
        installer = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
        # Dependency groups need pip 25.1, and the pip of Python may be older.
        run([*installer, "-qq", "--upgrade", "pip>=25.1"])
    run([*installer, "-qq", "--editable", ".", "--group", group, *extra])
    return python


def works(python: Path) -> bool:
    """Whether the environment exists, and the Python from which it was created."""
    return python.exists() and subprocess.run([python, "-c", ""], check=False).returncode == 0


def create(directory: Path, interpreter: str, uv: str | None) -> None:
    if uv:
        run([uv, "venv", "--quiet", "--clear", "--python", interpreter, str(directory)])
        return
    if subprocess.run([interpreter, "-c", "import ensurepip"], check=False).returncode:
        install_venv()
    run([interpreter, "-m", "venv", "--clear", str(directory)])


def install_venv() -> None:
    """Install the package of Debian that contains ensurepip, if this user may do so."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.exit("This Python has no ensurepip: install python3-venv (or uv) and try again.")
    print("Installing python3-venv with apt-get.", file=sys.stderr, flush=True)
    run(["apt-get", "--quiet", "update"])
    run(["apt-get", "--quiet", "install", "--yes", "--no-install-recommends", "python3-venv"])


def run(command: list[str]) -> None:
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main())
