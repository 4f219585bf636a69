"""What a form asks until when something is to be ignored."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from django.utils.translation import gettext as _

from django_eventbus.time_bounds import LATEST, is_too_far


def problem_with_until(until: datetime) -> str:
    """Say why nothing can be ignored until then, or return ""."""
    if until <= timezone.now():
        return _("This time has passed.")
    return _("The latest time is %(time)s.") % {"time": LATEST} if is_too_far(until) else ""
