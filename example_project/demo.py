"""Run the shop and tell, line by line, what becomes of its orders. `make demo` runs this."""

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
    """Run the demo on a database of its own; return its exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    # Also where whoever started us has it ignored, as a shell does in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stays_up = sys.stdout.isatty() and not os.environ.get("DEMO_ONCE")
    with TemporaryDirectory(prefix="eventbus-demo-") as directory:
        os.environ.update(environment(Path(directory)))
        try:
            return run(Path(directory), stays_up)
        except KeyboardInterrupt:
            return 128 + signal.SIGINT


def environment(directory: Path) -> dict[str, str]:
    """Return what the settings read, whatever the caller's environment says."""
    return {
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "DATABASE_URL": f"sqlite:///{directory / 'shop.sqlite3'}",
        "EVENTBUS_BROKER_URL": os.environ.get("BROKER") or "database://",
        # Of this demo only: others may use the same broker.
        "EVENTBUS_NAMESPACE": f"demo{secrets.token_hex(4)}",
        "SECRET_KEY": secrets.token_urlsafe(),
        "PARTNER_SECRET": secrets.token_urlsafe(),
        "DEBUG": "true",
        "ALLOWED_HOSTS": "127.0.0.1,localhost",
        "PYTHONUNBUFFERED": "1",
    }


def run(directory: Path, stays_up: bool) -> int:
    django.setup()
    # The narrator says it better; the shop's processes log to files.
    logging.getLogger("django_eventbus").setLevel(logging.WARNING)
    # Only now, because these modules import models.
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
