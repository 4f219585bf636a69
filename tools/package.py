"""Build sdist and wheel, and check that the wheel works in an environment without the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIRED = ("django_eventbus/py.typed", "django_eventbus/migrations/0001_initial.py")
SETTINGS = """
SECRET_KEY = "a project of its own"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": "project.sqlite3",
        "OPTIONS": {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }
}
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_eventbus"]
EVENTBUS = {"SERVICE": "orders"}
"""


def main() -> int:
    """Build, inspect, install and check."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    # The wheel is built from the sdist, which proves that the sdist is complete.
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist"], ROOT)
    (wheel,) = (ROOT / "dist").glob("*.whl")
    inspect(wheel)
    with tempfile.TemporaryDirectory(prefix="eventbus-wheel-") as directory:
        try_out(wheel, Path(directory))
    print(f"{wheel.name} installs, checks and migrates.")
    return 0


def inspect(wheel: Path) -> None:
    """Exit with an error if the wheel has other files than the package, or lacks some."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    strays = [
        name for name in names if not name.startswith(("django_eventbus/", "django_eventbus-"))
    ]
    lacking = [name for name in REQUIRED if name not in names]
    if strays or lacking:
        sys.exit(
            f"{wheel.name} has the extra files {strays or 'none'} and lacks {lacking or 'none'}."
        )


def try_out(wheel: Path, directory: Path) -> None:
    venv.create(directory / "venv", with_pip=True)
    binaries = directory / "venv" / "bin"
    pip = [str(binaries / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    run([*pip, "-qq", str(wheel)], directory)
    (directory / "project_settings.py").write_text(SETTINGS)
    admin = [str(binaries / "django-admin")]
    options = ["--pythonpath", ".", "--settings", "project_settings"]
    run([*admin, "check", "--fail-level", "WARNING", *options], directory)
    run([*admin, "migrate", "--verbosity", "0", *options], directory)
    where = "import django_eventbus; print(django_eventbus.__file__)"
    found = run([str(binaries / "python"), "-c", where], directory, stdout=subprocess.PIPE)
    if not found.stdout.startswith(str(directory)):
        sys.exit(f"The checkout was used instead of the wheel: {found.stdout}")


def run(
    command: list[str], directory: Path, stdout: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command without the variables that could make the checkout importable."""
    hidden = ("PYTHONPATH", "DJANGO_SETTINGS_MODULE")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(
        command, cwd=directory, env=environment, check=True, stdout=stdout, text=True
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"The package does not build or work: {error}")
