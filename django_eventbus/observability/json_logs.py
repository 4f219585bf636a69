"""Format log records as JSON, one object a line."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from types import TracebackType

from django_eventbus.conf.log_codes import FIELDS
from django_eventbus.observability.tracing.tracer import current_ids


class JsonFormatter(logging.Formatter):
    """
    Format a record as one JSON object: time, level, logger, message, and the bus's own fields.

    Other fields of a record are omitted, since they may contain anything: name your own in *fields*.
    Of an exception, the types and the stack are shown, never its text.
    A record without a trace gets the ids of the current span, if there is one.
    """

    def __init__(self, fields: Iterable[str] = ()) -> None:
        super().__init__()
        self.fields = (*FIELDS, *fields)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line without its line break."""
        fields = {name: getattr(record, name) for name in self.fields if hasattr(record, name)}
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **current_ids(),
            **fields,
        }
        if record.exc_info and record.exc_info[1]:
            line["exceptions"] = [_exception(each) for each in _chain(record.exc_info[1])]
        return json.dumps(line, default=str)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield *error* and its causes, the first cause last."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _exception(error: BaseException) -> dict[str, object]:
    kind = type(error)
    return {"type": f"{kind.__module__}.{kind.__qualname__}", "stack": _stack(error.__traceback__)}


def _stack(found: TracebackType | None) -> list[str]:
    # Without the source lines: a literal in them may be a secret.
    frames = traceback.StackSummary.extract(traceback.walk_tb(found), lookup_lines=False)
    return [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
