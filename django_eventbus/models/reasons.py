"""Why a row is in its state: the code is stored, and pages show the sentence of its label."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Reason(models.TextChoices):
    """Codes whose labels are sentences; %(detail)s is the text that is stored beside the code."""

    def sentence(self, detail: object = "") -> str:
        """Return the label with *detail*, in the language of the reader."""
        return str(self.label) % {"detail": detail}


class PlanNote(Reason):
    """Why a plan paused, or who changed it."""

    PAUSED = "paused", _("Paused by %(detail)s.")
    CANCELLED = "cancelled", _("Cancelled by %(detail)s.")
    CANARY_DONE = (
        "canary_done",
        _("The canary of %(detail)s is done. Check its result, then resume or cancel the plan."),
    )
    FAILING = "failing", _("Too many of the latest re-drives failed again: %(detail)s.")
    ERROR = (
        "error",
        _("The plan cannot continue: %(detail)s. The log of the worker has the details."),
    )


class LetterReason(Reason):
    """Why a plan skipped a dead letter, or how its re-drive failed."""

    #: The detail is a state of the dead letter.
    CHANGED = "changed", _("it was %(detail)s in the meantime")
    PRUNED = "pruned", _("its dead letter was pruned")
    REDRIVEN = "redriven", _("it was re-driven in the meantime")
    REDRIVEN_BY = "redriven_by", _("%(detail)s re-drove it in the meantime")
    REDRIVEN_AGAIN = "redriven_again", _("it failed and was then re-driven again")
    UNSENT = "unsent", _("it did not reach its queue")
    TIMEOUT = "timeout", _("no outcome was reported within %(detail)s")
    INVALID = "invalid", _("the patched payload is not valid: %(detail)s")
    PLAN_CANCELLED = "plan_cancelled", _("the plan was cancelled")
    #: The detail is the type of the error.
    ERROR = "error", "%(detail)s"


class UnansweredReason(Reason):
    """Why the outcome of a re-drive is not known."""

    UNSENT = "unsent", _("The message did not reach its queue.")
    TIMEOUT = "timeout", _("No outcome was reported in time.")


class SkipReason(Reason):
    """Why the inbox skips a message that a person has closed; the detail is in its error."""

    DISCARDED = "discarded", _("discarded: %(detail)s")
    REPLACED = "replaced", _("replaced by %(detail)s")


class StayReason(Reason):
    """Why a re-drive from the broker left a message in the DLQ."""

    RETURNED = "returned", _("it came back during the re-drive")
    OTHER_QUEUE = "other_queue", _("it belongs to %(detail)s")
    NO_QUEUE = "no_queue", _("its queue does not exist")
    REJECTED = "rejected", _("the broker rejected it: %(detail)s")
    NOT_ACCEPTED = "not_accepted", _("the broker does not accept it at the moment")
