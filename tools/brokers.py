"""Fetch other versions of RabbitMQ, each in a Debian of its own below .brokers.

It needs only Python, because it runs before anything is installed.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BROKERS = ROOT / ".brokers"
#: The suites of Debian that contain a version.
SUITES = {"4.0": "trixie", "4.3": "sid"}
SOURCES = Path("/etc/apt")
#: Runs a program of another root. Everything is mounted in a namespace that ends with the program,
#: so deleting the root never deletes what is mounted in it.
IN_ROOT = """
root=$1 shared=$2; shift 2
mkdir -p "$root$shared" && mount --rbind "$shared" "$root$shared" || exit
mount --rbind /dev "$root/dev" && mount --rbind /proc "$root/proc" || exit
exec chroot "$root" sh -c 'cd "$0" 2>/dev/null || cd /; exec "$@"' "$PWD" "$@"
"""


class Unfetched(Exception):
    """A broker cannot be fetched, or was not; says why."""


def main(versions: list[str]) -> int:
    """Fetch the given versions, or all of them, and return 1 if one cannot be fetched."""
    failures = 0
    for version in versions or SUITES:
        try:
            print(f"RabbitMQ {fetch(version)} is in {BROKERS / version}.", flush=True)
        except Unfetched as problem:
            failures += 1
            print(f"RabbitMQ {version} cannot be fetched: {problem}.", file=sys.stderr)
    return min(failures, 1)


def fetch(version: str) -> str:
    """Fetch *version* unless it is there already, and return the full version."""
    if version not in SUITES:
        raise Unfetched(f"the versions are {', '.join(SUITES)}")
    place = BROKERS / version
    if not place.exists():
        unfinished = BROKERS / f"{version}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        BROKERS.mkdir(exist_ok=True)
        bootstrap(SUITES[version], unfinished)
        unfinished.rename(place)
    found = version_in(place)
    if not f"{found}.".startswith(f"{version}."):
        shutil.rmtree(place)
        raise Unfetched(f"the suite {SUITES[version]} of Debian contains {found or 'none'} now")
    return found


def bootstrap(suite: str, place: Path) -> None:
    """Install a Debian with RabbitMQ into *place*."""
    if os.geteuid() != 0:
        raise Unfetched("debootstrap needs root")
    mirror = mirror_of(SOURCES, codename())
    debootstrap = shutil.which("debootstrap") or install_debootstrap()
    print(f"Fetching the suite {suite} from {mirror}.", flush=True)
    # In a namespace of its own, what it mounts cannot outlast it.
    command = ["unshare", "--mount", debootstrap, "--variant=minbase"]
    command += ["--include=rabbitmq-server", suite, str(place), mirror]
    ended = subprocess.run(command, stdout=sys.stderr, check=False)
    if ended.returncode:
        shutil.rmtree(place, ignore_errors=True)
        raise Unfetched(f"debootstrap exited with {ended.returncode}")
    # RabbitMQ looks up the name of its node there.
    shutil.copy("/etc/hosts", place / "etc/hosts")


def mirror_of(sources: Path, codename: str) -> str:
    """Return the archive of Debian that the apt sources name for the release of this machine."""
    named = [uri for uri, suite in _archives(sources) if suite == codename]
    # Others, such as RabbitMQ's own, also have a suite for each release, but only that.
    for uri in sorted(named, key=lambda uri: not uri.rstrip("/").endswith("/debian")):
        if uri.startswith(("http:", "https:", "file:")):
            return uri
    raise Unfetched("the apt sources do not name an archive of Debian")


def codename() -> str:
    """Return the name of the Debian release of this machine."""
    with suppress(OSError):
        return platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    return ""


def _archives(sources: Path) -> Iterator[tuple[str, str]]:
    """Yield the address and the suite of each archive with the component "main"."""
    for file in sorted(sources.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", file.read_text()):
            fields = dict(re.findall(r"^([\w-]+):[ \t]*(.*)$", stanza, re.M))
            if "main" in fields.get("Components", "").split() and fields.get("Enabled") != "no":
                for uri in fields.get("URIs", "").split():
                    yield from ((uri, suite) for suite in fields.get("Suites", "").split())
    for file in [sources / "sources.list", *sorted(sources.glob("sources.list.d/*.list"))]:
        text = file.read_text() if file.exists() else ""
        for uri, suite in re.findall(
            r"^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+.*\bmain\b", text, re.M
        ):
            yield uri, suite


def install_debootstrap() -> str:
    if not shutil.which("apt-get"):
        raise Unfetched("debootstrap is not installed, and there is no apt-get to install it")
    print("Installing debootstrap with apt-get.", file=sys.stderr, flush=True)
    apt = ["apt-get", "--quiet", "--quiet"]
    subprocess.run([*apt, "update"], stdout=sys.stderr, check=False)
    command = [*apt, "install", "--yes", "--no-install-recommends", "debootstrap"]
    subprocess.run(command, stdout=sys.stderr, check=False)
    if found := shutil.which("debootstrap"):
        return found
    raise Unfetched("apt-get could not install debootstrap")


def version_in(root: Path) -> str:
    """Return the version of RabbitMQ that is installed in *root*; "" if there is none."""
    found = sorted(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))
    return found[-1].name.removeprefix("rabbitmq_server-") if found else ""


def root_of(version: str) -> Path:
    """Return the root that contains RabbitMQ *version*: that of this machine, or a fetched one."""
    for root in (Path("/"), BROKERS / version):
        if f"{version_in(root)}.".startswith(f"{version}."):
            return root
    remedy = "run `make brokers`" if version in SUITES else f"there are {', '.join(SUITES)}"
    raise Unfetched(f"RabbitMQ {version} is not installed; {remedy}")


def inside(root: Path) -> list[str]:
    """Return what runs a command in *root*; its pid, signals and temporary files are as outside."""
    if root == Path("/"):
        return []
    return ["unshare", "--mount", "sh", "-c", IN_ROOT, "sh", str(root), tempfile.gettempdir()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
