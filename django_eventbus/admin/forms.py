"""Form fields that several pages share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NoReturn

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext as _

from django_eventbus.durations import LATEST, is_too_far

#: Levels of a value that a text area shows.
_DEEPEST_SHOWN = 500


class StrictJSONField(forms.CharField):
    """A text area of JSON; an error names the line and column."""

    widget = forms.Textarea

    def __init__(self, *, rows: int, **options: Any) -> None:
        attributes = {"rows": rows, "class": "vLargeTextField eventbus-code", "spellcheck": "false"}
        super().__init__(widget=forms.Textarea(attrs=attributes), strip=False, **options)

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        return parse_json(text) if text.strip() else None


def parse_json(text: str) -> Any:
    """Return *text* decoded, or raise ValidationError with the line and column."""
    try:
        return json.loads(
            text, parse_constant=_reject_constant, object_pairs_hook=_reject_duplicate_keys
        )
    except json.JSONDecodeError as error:
        words = {"line": error.lineno, "column": error.colno, "problem": error.msg}
        raise ValidationError(_("Line %(line)d, column %(column)d: %(problem)s.") % words) from None
    except ValueError:
        # Python reads no int of more than 4,300 digits.
        raise ValidationError(_("It contains a number with too many digits.")) from None
    except RecursionError:
        raise ValidationError(_("It is nested too deeply.")) from None


def format_json(value: Any) -> str:
    """Return *value* as indented JSON; "" if it is nested too deeply."""
    # Counted, because Python's own limit differs between its versions and from caller to caller.
    if _is_deeper_than(_DEEPEST_SHOWN, value):
        return ""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return ""


def _is_deeper_than(limit: int, value: Any) -> bool:
    level = [value]
    for _level in range(limit):
        level = [part for each in level for part in _parts(each)]
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _value in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValidationError(_("The key %(key)s appears twice.") % {"key": json.dumps(twice)})
    return found


def _reject_constant(constant: str) -> NoReturn:
    raise ValidationError(_("%(constant)s is not JSON.") % {"constant": constant})


def problem_with_until(until: datetime) -> str:
    """Say why *until* cannot be the end of an ignore; "" if it can."""
    if until <= timezone.now():
        return _("This time has passed.")
    return _("The latest time is %(time)s.") % {"time": LATEST} if is_too_far(until) else ""
