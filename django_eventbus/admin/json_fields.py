"""JSON in a form: read strictly, and shown with its lines."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _


class StrictJSONField(forms.CharField):
    """A text area of JSON; says where it cannot be read."""

    widget = forms.Textarea

    def __init__(self, *, rows: int, **options: Any) -> None:
        attributes = {"rows": rows, "class": "vLargeTextField eventbus-code", "spellcheck": "false"}
        super().__init__(widget=forms.Textarea(attrs=attributes), strip=False, **options)

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        return parsed(text) if text.strip() else None


def parsed(text: str) -> Any:
    """Return what *text* says as JSON, or raise ValidationError with the place."""
    try:
        return json.loads(text, parse_constant=_refuse, object_pairs_hook=_once_each)
    except json.JSONDecodeError as error:
        words = {"line": error.lineno, "column": error.colno, "problem": error.msg}
        raise ValidationError(_("Line %(line)d, column %(column)d: %(problem)s.") % words) from None
    except ValueError:
        # Python reads no int of more than 4,300 digits.
        raise ValidationError(_("A number in it has too many digits.")) from None
    except RecursionError:
        raise ValidationError(_("It is nested too deeply.")) from None


def written(value: Any) -> str:
    """Return *value* as JSON with lines; "" if it is nested too deeply to be written."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        # What could just be read may be too deep to write, from a few calls further down.
        return ""


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _value in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValidationError(_("The key %(key)s is there twice.") % {"key": json.dumps(twice)})
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValidationError(_("%(constant)s is not JSON.") % {"constant": constant})
