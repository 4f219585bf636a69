"""Forms that are refused: what is wrong is said first, and the first wrong field is focused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.forms import BaseForm


def refused_among(values: Iterable[Any]) -> dict[str, Any]:
    """Return what admin/eventbus/refused.html says of the forms among *values*."""
    forms = [each for each in values if isinstance(each, BaseForm) and each.errors]
    fields = [field for form in forms for field in form if field.errors]
    shown = [field for field in fields if not field.is_hidden]
    if shown:
        shown[0].field.widget.attrs["autofocus"] = True
    return {
        "refused_fields": [(field, error) for field in fields for error in field.errors],
        "refused_otherwise": [error for form in forms for error in form.non_field_errors()],
        "is_field_focused": bool(shown),
    }
