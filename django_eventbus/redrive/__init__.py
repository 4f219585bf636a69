"""Plans that re-drive, discard or restore dead letters: the API for operators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_eventbus.dead_letters.selection import Selection as Selection
    from django_eventbus.redrive.discards import discard as discard
    from django_eventbus.redrive.discards import discard_selected as discard_selected
    from django_eventbus.redrive.discards import ignore_selected as ignore_selected
    from django_eventbus.redrive.discards import restore_selected as restore_selected
    from django_eventbus.redrive.discards import run_to_end as run_to_end
    from django_eventbus.redrive.discards import start_plan as start_plan
    from django_eventbus.redrive.discards import unpaced as unpaced
    from django_eventbus.redrive.dry_runs import dry_run as dry_run
    from django_eventbus.redrive.dry_runs import dry_run_patch as dry_run_patch
    from django_eventbus.redrive.edited_message import Edit as Edit
    from django_eventbus.redrive.letters import edit_and_redrive as edit_and_redrive
    from django_eventbus.redrive.letters import redrive as redrive
    from django_eventbus.redrive.plans import Pace as Pace
    from django_eventbus.redrive.plans import cancel as cancel
    from django_eventbus.redrive.plans import make_plan as make_plan
    from django_eventbus.redrive.plans import pause as pause
    from django_eventbus.redrive.plans import resume as resume
    from django_eventbus.redrive.plans import start as start

_HOMES = {
    "Edit": "redrive.edited_message",
    "Pace": "redrive.plans",
    "Selection": "dead_letters.selection",
    "cancel": "redrive.plans",
    "discard": "redrive.discards",
    "discard_selected": "redrive.discards",
    "dry_run": "redrive.dry_runs",
    "dry_run_patch": "redrive.dry_runs",
    "edit_and_redrive": "redrive.letters",
    "ignore_selected": "redrive.discards",
    "make_plan": "redrive.plans",
    "pause": "redrive.plans",
    "redrive": "redrive.letters",
    "restore_selected": "redrive.discards",
    "resume": "redrive.plans",
    "run_to_end": "redrive.discards",
    "start": "redrive.plans",
    "start_plan": "redrive.discards",
    "unpaced": "redrive.discards",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    # Lazy, so that a worker that only releases held keys does not import the plans.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"django_eventbus.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
