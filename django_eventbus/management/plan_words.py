"""How far a plan is, for a terminal and as JSON."""

from __future__ import annotations

from typing import Any

from django_eventbus.models import Plan
from django_eventbus.plan_actions import ACTIONS
from django_eventbus.plans import progress


def plan_as_json(plan: Plan) -> dict[str, Any]:
    """Return what scripts want to know of *plan*."""
    about = {"plan": plan.pk, "action": plan.action, "state": plan.state}
    return {**about, **progress(plan)}


def no_plan_as_json(action: str) -> dict[str, Any]:
    """Return the same where nothing was meant, and no plan was made."""
    counts = {str(state): 0 for state in ACTIONS[action].outcomes}
    return {"plan": None, "action": action, "state": None, **counts}


def plan_in_words(plan: Plan) -> str:
    """Return the same in a sentence, without what is 0."""
    counts = [f"{number:,} {state}" for state, number in progress(plan).items() if number]
    return f"Plan {plan.pk} is {plan.state}: {', '.join(counts)}."
