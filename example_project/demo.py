"""Run the shop and print, line by line, what happens to its orders. `make demo` runs this."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import django


def main() -> int:
    """Run the demo on its own database; return its exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    # Also if the parent process ignores the signal, as a shell does for background processes.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stays_up = sys.stdout.isatty() and not os.environ.get("DEMO_ONCE")
    with TemporaryDirectory(prefix="eventbus-demo-") as directory:
        os.environ.update(environment(Path(directory)))
        try:
            return run(Path(directory), stays_up)
        except KeyboardInterrupt:
            return 128 + signal.SIGINT


def environment(directory: Path) -> dict[str, str]:
    """Return the environment for the settings, independent of the caller's environment."""
    return {
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "DATABASE_URL": f"sqlite:///{directory / 'shop.sqlite3'}",
        "EVENTBUS_BROKER_URL": os.environ.get("BROKER") or "database://",
        # Only for this demo, because others may use the same broker.
        "EVENTBUS_NAMESPACE": f"demo{secrets.token_hex(4)}",
        "SECRET_KEY": secrets.token_urlsafe(),
        "PARTNER_SECRET": secrets.token_urlsafe(),
        "DEBUG": "true",
        "ALLOWED_HOSTS": "127.0.0.1,localhost",
        "PYTHONUNBUFFERED": "1",
    }


def run(directory: Path, stays_up: bool) -> int:
    django.setup()
    # The narrator prints the events instead; the processes of the shop log to files.
    logging.getLogger("django_eventbus").setLevel(logging.WARNING)
    # Import them here, because these modules import models.
    from demonstration.play import play
    from demonstration.processes import DemoFailed

    try:
        play(directory, stays_up=stays_up)
    except DemoFailed as failure:
        print(f"\n{failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
