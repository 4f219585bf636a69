"""What commands that print share: they end quietly when nobody reads on."""

from __future__ import annotations

import os
import signal
import sys

from django.core.management.base import BaseCommand


class PrintingCommand(BaseCommand):
    """A command whose output may go to `head`."""

    def run_from_argv(self, argv: list[str]) -> None:
        try:
            try:
                super().run_from_argv(argv)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            # Else Python would flush it once more at the end, and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(128 + signal.SIGPIPE) from None
