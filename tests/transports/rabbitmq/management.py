"""A virtual host of the test's own on a node that the tests own, ruled over HTTP."""

from __future__ import annotations

from urllib.parse import quote

from tests.support.amqp import Amqp


class VirtualHost:
    """Users, permissions and policies; rabbitmqctl would take seconds for each."""

    def __init__(self, node, settings):
        self.node = node
        self.amqp = Amqp(node.server.url)
        self.name = self.amqp.namespace
        self.amqp.url = f"amqp://guest:guest@127.0.0.1:{node.server.port}/{self.name}"
        self.amqp.settings["BROKER_URL"] = self.amqp.url
        self.settings = settings
        self.call("PUT", f"vhosts/{self.name}")
        self.permit("guest", ".*", ".*", ".*")
        self.configure(**self.amqp.settings)

    def configure(self, **values):
        self.settings.EVENTBUS = {**self.settings.EVENTBUS, **values}
        self.amqp.settings.update(values)

    def call(self, method, path, **body):
        return self.node.call(method, path, **body)

    def permit(self, user, configure, write, read):
        self.call(
            "PUT", f"permissions/{self.name}/{user}", configure=configure, write=write, read=read
        )

    def add_user(self, name, configure="^$", write="^$", read="^$"):
        """Make a user with these rights in this virtual host, and become it."""
        self.call("PUT", f"users/{name}", password="secret", tags="")
        self.permit(name, configure, write, read)
        self.become(name)

    def become(self, user, password="secret"):
        self.configure(BROKER_USER=user, BROKER_PASSWORD=password)

    def set_policy(self, pattern, **definition):
        definition = {key.replace("_", "-"): value for key, value in definition.items()}
        path = f"policies/{self.name}/{quote('of ' + pattern)}"
        self.call("PUT", path, pattern=pattern, definition=definition, **{"apply-to": "queues"})

    def remove(self):
        self.call("DELETE", f"vhosts/{self.name}")
