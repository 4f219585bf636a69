"""Find the services that the tests need, or start them; `python -m tests.support.services` shows them.

In this order: the environment, what runs on this machine, a private instance from installed
binaries, an installation (Debian as root), Docker. Nothing that was found running is changed.
"""

from __future__ import annotations

import atexit
import getpass
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.helpers import eventually
from tests.support.private_servers import (
    RABBITMQ_VERSION,
    PrivatePostgres,
    PrivateRabbitmq,
    PrivateServer,
    chosen_rabbitmq,
)
from tests.support.probes import Unavailable, postgres_answers, rabbitmq_answers

NO_SERVICES = "EVENTBUS_TEST_NO_SERVICES"
NO_INSTALL = "EVENTBUS_TEST_NO_INSTALL"
#: An environment of its own: django-celery-beat keeps Django below 6.1.
BEAT = Path(__file__).parent.parent.parent / ".beat"


class ServiceMissing(Exception):
    """A service is required and cannot be had."""

    def __init__(self, name: str, reason: str):
        super().__init__(f"There is no {name}: {reason}.")
        self.name = name
        self.reason = reason


@dataclass(frozen=True)
class Service:
    """Where a service is and how it was found, or (without a URL) why there is none."""

    name: str
    url: str | None
    origin: str


@dataclass(frozen=True)
class Kind:
    """What finding one kind of service takes."""

    name: str
    variable: str
    answer: Callable[[str], object]
    local_urls: Callable[[], list[str]]
    private: type[PrivateServer]
    package: str
    image: str
    image_options: tuple[str, ...]
    image_port: int
    image_url: str

    @property
    def variable_missing(self) -> str:
        return f"{self.variable}_MISSING"


def local_postgres_urls() -> list[str]:
    port = os.environ.get("PGPORT", "5432")
    users = dict.fromkeys([os.environ.get("PGUSER", "postgres"), "postgres", getpass.getuser()])
    return [f"postgres://{user}@127.0.0.1:{port}/postgres" for user in users]


POSTGRES = Kind(
    name="PostgreSQL",
    variable="EVENTBUS_TEST_POSTGRES_URL",
    answer=postgres_answers,
    local_urls=local_postgres_urls,
    private=PrivatePostgres,
    package="postgresql",
    image="postgres:17-alpine",
    image_options=("--env", "POSTGRES_HOST_AUTH_METHOD=trust"),
    image_port=5432,
    image_url="postgres://postgres@{address}/postgres",
)
RABBITMQ = Kind(
    name="RabbitMQ",
    variable="EVENTBUS_TEST_RABBITMQ_URL",
    answer=rabbitmq_answers,
    local_urls=lambda: ["amqp://guest:guest@127.0.0.1:5672/%2F"],
    private=PrivateRabbitmq,
    package="rabbitmq-server",
    image="rabbitmq:4-alpine",
    image_options=(),
    image_port=5672,
    image_url="amqp://guest:guest@{address}/%2F",
)


def running(kind: Kind) -> str:
    """Return the URL of the service that runs on this machine's default port."""
    reason = Unavailable("")
    for url in kind.local_urls():
        try:
            kind.answer(url)
        except Unavailable as error:
            reason = error
        else:
            return url
    raise reason


def private(kind: Kind) -> str:
    """Start a private instance that lives as long as this process, and return its URL."""
    return start(kind).url


def start(kind: Kind) -> PrivateServer:
    server = kind.private()
    try:
        server.start()
    except (OSError, subprocess.SubprocessError, AssertionError, Unavailable) as error:
        server.remove()
        raise Unavailable(f"no private {kind.name}: {error}") from error
    return server


def installed(kind: Kind) -> str:
    """Install the binaries, then start a private instance from them."""
    install(kind.package)
    return private(kind)


def install(package: str) -> None:
    """Install a Debian package where that may be done, and say so."""
    if os.environ.get(NO_INSTALL):
        raise Unavailable(f"{NO_INSTALL} is set")
    if os.geteuid() != 0 or not Path("/etc/debian_version").exists():
        raise Unavailable("installing it takes root on Debian")
    print(f"Installing {package} with apt-get for the tests.", file=sys.stderr, flush=True)
    # Runlevel 1 keeps the package from starting a service on the default port.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    apt = ["apt-get", "--quiet", "--quiet", "--yes"]
    subprocess.run([*apt, "update"], env=environment, stdout=sys.stderr, check=False, timeout=300)
    command = [*apt, "install", "--no-install-recommends", package]
    result = subprocess.run(command, env=environment, stdout=sys.stderr, check=False, timeout=900)
    if result.returncode:
        raise Unavailable(f"apt-get could not install {package}")


def docker(kind: Kind) -> str:
    """Start a container that is removed when this process ends, and return its URL."""
    if not shutil.which("docker") or not docker_says("info"):
        raise Unavailable("no Docker engine answers")
    publish = f"127.0.0.1::{kind.image_port}"
    options = ["--detach", "--rm", "--publish", publish, *kind.image_options]
    container = docker_says("run", *options, kind.image)
    if not container:
        raise Unavailable(f"Docker could not run {kind.image}")
    atexit.register(docker_says, "rm", "--force", "--volumes", container)
    address = docker_says("port", container, str(kind.image_port)).splitlines()[0]
    url = kind.image_url.format(address=address)
    eventually(lambda: answers(kind, url), timeout=120, message=f"{kind.image} does not answer.")
    return url


def docker_says(*arguments: str) -> str:
    """Return what a docker command prints, or nothing if it fails."""
    result = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    return "" if result.returncode else result.stdout.strip()


def answers(kind: Kind, url: str) -> bool:
    with suppress(Unavailable):
        kind.answer(url)
        return True
    return False


def find(kind: Kind) -> Service:
    """Return the service, or the reason there is none; under CI, raise that reason."""
    # Either way the answer is exported: processes started from here must not look again.
    try:
        url, origin = locate(kind)
    except Unavailable as error:
        os.environ[kind.variable_missing] = str(error)
        if os.environ.get("CI") == "true":
            raise ServiceMissing(kind.name, f"{error}, and CI may not do without") from error
        return Service(kind.name, None, str(error))
    os.environ[kind.variable] = url
    return Service(kind.name, url, origin)


def locate(kind: Kind) -> tuple[str, str]:
    if os.environ.get(NO_SERVICES):
        raise Unavailable(f"{NO_SERVICES} is set")
    if reason := os.environ.get(kind.variable_missing):
        raise Unavailable(reason)
    version = chosen_rabbitmq() if kind is RABBITMQ else ""
    if url := os.environ.get(kind.variable):
        raise_if_other_version(kind.answer(url), version)
        return url, kind.variable
    reasons = []
    for way in (private,) if version else (running, private, installed, docker):
        try:
            return way(kind), way.__name__
        except Unavailable as error:
            reasons.append(str(error))
    raise Unavailable("; ".join(reasons))


def raise_if_other_version(found: object, chosen: str) -> None:
    if chosen and not f"{found}.".startswith(f"{chosen}."):
        raise Unavailable(
            f"{RABBITMQ.variable} leads to RabbitMQ {found}, and {RABBITMQ_VERSION} is {chosen}"
        )


def postgres_url() -> str:
    """Return the URL of PostgreSQL for the settings, looking for it only once per run."""
    return os.environ.get(POSTGRES.variable) or required(POSTGRES)


def rabbitmq_url() -> str:
    """Return the URL of RabbitMQ, looking for it only once per run."""
    return os.environ.get(RABBITMQ.variable) or required(RABBITMQ)


def required(kind: Kind) -> str:
    service = find(kind)
    if service.url is None:
        raise ServiceMissing(kind.name, service.origin)
    return service.url


def chromium() -> str:
    """Return the path of a Chromium, installing one where that may be done."""
    if os.environ.get(NO_SERVICES):
        raise ServiceMissing("Chromium", f"{NO_SERVICES} is set")
    if found := installed_chromium():
        return found
    try:
        install("chromium")
    except Unavailable as error:
        raise ServiceMissing("Chromium", str(error)) from error
    return installed_chromium()


def installed_chromium() -> str:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), "")


def xgettext() -> str:
    """Return the path of xgettext, installing it where that may be done."""
    if not shutil.which("xgettext"):
        try:
            install("gettext")
        except Unavailable as error:
            raise ServiceMissing("xgettext", str(error)) from error
    return shutil.which("xgettext") or ""


def python_with_celery_beat() -> str:
    """Return the Python of the environment that tests/support/suite.py makes before it runs any test."""
    if not (BEAT / "bin" / "python").exists():
        raise ServiceMissing("django-celery-beat", "`make test` makes its environment in .beat")
    return str(BEAT / "bin" / "python")


@contextmanager
def private_postgres() -> Iterator[PrivatePostgres]:
    """Run a PostgreSQL that a test may stop in any way."""
    with private_server(POSTGRES) as server:
        assert isinstance(server, PrivatePostgres)
        yield server


@contextmanager
def private_rabbitmq() -> Iterator[PrivateRabbitmq]:
    """Run a RabbitMQ that a test may kill."""
    with private_server(RABBITMQ) as server:
        assert isinstance(server, PrivateRabbitmq)
        yield server


@contextmanager
def private_server(kind: Kind) -> Iterator[PrivateServer]:
    try:
        server = start_or_install(kind)
    except Unavailable as error:
        raise ServiceMissing(kind.name, str(error)) from error
    try:
        yield server
    finally:
        server.remove()


def start_or_install(kind: Kind) -> PrivateServer:
    if os.environ.get(NO_SERVICES):
        raise Unavailable(f"{NO_SERVICES} is set")
    try:
        return start(kind)
    except Unavailable as error:
        if kind is RABBITMQ and chosen_rabbitmq():
            raise
        try:
            install(kind.package)
        except Unavailable as refusal:
            raise Unavailable(f"{error}; {refusal}") from error
    return start(kind)


def main() -> int:
    """Print what was found, and return 1 when something is missing."""
    found = [find(kind) for kind in (POSTGRES, RABBITMQ)]
    for service in found:
        print(f"{service.name}: {service.url or 'none'} ({service.origin})")
    return 0 if all(service.url for service in found) else 1


if __name__ == "__main__":
    sys.exit(main())
