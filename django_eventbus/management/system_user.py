"""Who runs a command, as the operating system knows them."""

from __future__ import annotations

import getpass
import os


def system_user() -> str:
    """Return the name of the user, or the number of one who has none, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
