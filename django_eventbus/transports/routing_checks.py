"""Find types that no queue receives, and commands that several queues receive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from django_eventbus.events.routing import is_for_commands, matches, overlap, type_of
from django_eventbus.subscriptions.queue_specs import QueueSpec
from django_eventbus.transports.contract import Problem, PublishedType, error, warning

#: An exchange, the queue that is bound to it, and the routing key.
Binding = tuple[str, str, str]


def unhandled(published: Iterable[PublishedType], bindings: Iterable[Binding]) -> Iterator[Problem]:
    """Yield the published types that no queue receives, and the commands that several receive."""
    known = list(bindings)
    for each in published:
        queues = {queue for exchange, queue, key in known if _receives(exchange, key, each)}
        if not queues:
            yield warning(
                "unhandled",
                f"No queue is bound to receive events of the type {each.type!r}.",
                "Deploy a subscription to this type, or stop publishing it.",
                type=each.type,
            )
        elif is_for_commands(each.exchange) and len(queues) > 1:
            yield _several_queues(repr(each.type), queues)


def doubly_handled(queues: Sequence[QueueSpec], bindings: Iterable[Binding]) -> Iterator[Problem]:
    """Yield the commands of *queues* that another queue receives as well."""
    known = sorted(each for each in bindings if is_for_commands(each[0]))
    own = ((queue.name, exchange, key) for queue in queues for exchange, key in queue.bindings)
    for name, exchange, key in own:
        if is_for_commands(exchange):
            is_fanout = type_of(exchange) == "fanout"
            others = {queue for _, queue, other in known if is_fanout or overlap(key, other)}
            if others - {name}:
                yield _several_queues(f"with the routing key {key!r}", others | {name})


def _several_queues(which: str, queues: set[str]) -> Problem:
    return error(
        "doubly_handled",
        f"Commands {which} go to {len(queues)} queues, {', '.join(sorted(queues))}: each of them "
        "carries the command out.",
        "Keep one queue that handles the command, and delete the bindings of the others.",
        queues=sorted(queues),
    )


def _receives(exchange: str, key: str, published: PublishedType) -> bool:
    if exchange != published.exchange:
        return False
    match type_of(exchange):
        case "fanout":
            return True
        case "direct":
            return key == published.routing_key
    return matches(key, published.routing_key)
