"""Edit a dead letter's message and re-drive it: a new event in the place of the old one."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from django_eventbus import audit
from django_eventbus.dry_runs import Forecast, dry_run
from django_eventbus.edited_messages import Edit, edited_message, is_unchanged
from django_eventbus.exceptions import BadEdit
from django_eventbus.merge_patches import merged, require_storable
from django_eventbus.models import DeadLetter
from django_eventbus.redrive import Departure, send_back
from django_eventbus.selections import Selection
from django_eventbus.sentences import gettext_noop, known

UNCHANGED = known(
    gettext_noop("Nothing was changed. To send it as it was, under its own id, re-drive it.")
)


def edit_and_redrive(
    letter_id: int, edit: Edit, *, by: str, reason: str, using: str, round: int | None = None
) -> str:
    """
    Send *edit* to the subscription that failed, under a new id, which is returned.

    The dead letter is kept, linked by replaced_by, and closed when the broker has confirmed.
    Raise BadEdit, with everything that is wrong, or if it is no longer the *round* that was seen.
    """
    with transaction.atomic(using=using):
        letters = DeadLetter.objects.using(using).select_for_update()
        letter = letters.redrivable().filter(pk=letter_id).first()
        if letter is None or (round is not None and letter.round != round):
            raise _gone()
        message = edited_message(letter, edit)
        if is_unchanged(letter, edit):
            raise BadEdit([UNCHANGED])
        audit.record(
            "edit and re-drive",
            by=by,
            why=reason,
            selection=Selection.of_ids([letter_id]),
            using=using,
            count=1,
            outcome={"from": letter.message_id, "to": message.id},
        )
        if not send_back([Departure(letter=letter, message=message)], by=by, using=using):
            raise _gone()
    return message.id


def _gone() -> BadEdit:
    return BadEdit([_("The dead letter is no longer open, or was re-driven meanwhile.")])


def dry_run_patch(
    selection: Selection, patch: Any, *, using: str, limit: int | None = None
) -> Forecast:
    """Say what a re-drive with a JSON merge *patch* would do; raise BadPlan if no plan can keep it."""
    require_storable(patch)
    return dry_run(
        selection, using=using, change=lambda payload: merged(payload, patch), limit=limit
    )
