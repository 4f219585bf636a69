"""Commands: what is to be done, by the one queue that handles it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS

from django_eventbus.durations import Duration
from django_eventbus.events import Command
from django_eventbus.outbox import sending_of, write
from django_eventbus.routing import COMMANDS
from django_eventbus.subscribing import H, Topic, subscribe


def send_command(  # noqa: PLR0913
    command: Command | str,
    payload: Any = None,
    *,
    key: object = None,
    delay: Duration | None = None,
    at: datetime | None = None,
    headers: Mapping[str, Any] | None = None,
    correlation_id: str = "",
    debug: bool = False,
    using: str = DEFAULT_DB_ALIAS,
) -> UUID:
    """
    Write *command* to the outbox, in the current transaction if there is one; return its id.

    Raise InvalidEvent, before anything is written, if it could not be sent.
    """
    sending = sending_of(COMMANDS, delay, at, headers, correlation_id, debug)
    return write(command, payload, key=key, sending=sending, using=using)


def handle_command(command: str | type[Command], **options: Any) -> Callable[[H], H]:
    """Run the decorated function for each *command*; *options* are those of @subscribe."""
    return subscribe(_topic(command), **options)


def _topic(command: object) -> Topic:
    if isinstance(command, str):
        return Topic(command, route=COMMANDS)
    if isinstance(command, type) and issubclass(command, Command):
        return Topic(command.event_type, command, COMMANDS)
    raise TypeError(
        f"@handle_command was given {command!r:.100}: write @handle_command('file.reprocess'), "
        "@handle_command('file.*'), or a Command class"
    )
