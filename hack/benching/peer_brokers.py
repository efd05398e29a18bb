"""Starts the brokers that Penstock is compared with, each with a durable queue that load.c can use.

Each is as its distribution sets it up, but for: a port of ours, no management console, and every client may log in.
Artemis has the NIO journal, which syncs (journal-datasync is its default); RabbitMQ's queue is a quorum queue of one
node, as its classic queues do not sync; Broker-J's virtual host keeps messages in BDB.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benching import peer_archives
from benching.brokers import QUEUE, START_SECONDS, Broker, penstock, started

__all__ = ["STARTERS", "artemis", "broker_j", "rabbitmq"]

HOST = "127.0.0.1"
USER = PASSWORD = "guest"
ALIASES = ("nameAlias", "defaultAlias", "hostnameAlias")
"""Of Broker-J's port, as in its own initial configuration: clients that name a host find the virtual host, too."""


def free_port() -> int:
    """One that nobody listens on."""
    with socket.create_server((HOST, 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _await_port(port: int, name: str, pid: int, log: Path, said: str = "") -> None:
    """`said`: what it has written to its log when it is ready, where it listens earlier."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection((HOST, port), timeout=5).close()
            if said in log.read_text():
                return
            raise TimeoutError
        except OSError:
            if not Path(f"/proc/{pid}/exe").exists() or time.monotonic() > deadline:
                raise peer_archives.Missing(f"it did not start: {log.read_text()[-500:]}") from None
            time.sleep(0.2)  # a condition of another process: there is nothing to wait on


@contextmanager
def artemis(folder: Path) -> Generator[Broker]:
    """`artemis create --nio`, with the time-out of the journal's buffer that it measures for this disk."""
    home, instance, port = peer_archives.artemis_home(), folder / "artemis", free_port()
    command = [str(home / "bin" / "artemis"), "create", str(instance), "--nio", "--silent", "--no-web"]
    command += ["--user", USER, "--password", PASSWORD, "--allow-anonymous", "--host", HOST]
    command += ["--default-port", str(port), "--no-amqp-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor"]
    made = subprocess.run([*command, "--no-hornetq-acceptor"], capture_output=True, text=True)
    if made.returncode:
        raise peer_archives.Missing(f"artemis create failed: {(made.stdout + made.stderr)[-500:]}")
    settings = (instance / "etc" / "broker.xml").read_text()
    for wanted in ("<journal-type>NIO</journal-type>", "<journal-datasync>true</journal-datasync>"):
        if wanted not in settings:
            raise peer_archives.Missing(f"its broker.xml has no {wanted}")
    found = re.search("<journal-buffer-timeout>(.*?)<", settings)
    note = f"journal-buffer-timeout {found[1] if found else 'of its default'} ns"
    log = folder / "artemis.log"
    with started(peer_archives.ARTEMIS, [str(instance / "bin" / "artemis"), "run"], log) as pid:
        _await_port(port, "Artemis", pid, log)
        yield Broker(peer_archives.ARTEMIS, (pid,), HOST, str(port), note=note)


@contextmanager
def broker_j(folder: Path, queues: Sequence[str] = ()) -> Generator[Broker]:
    """One virtual host on BDB JE, which makes the queue when it is first used, and has these others."""
    home, work, port = peer_archives.broker_j_home(), folder / "broker-j", free_port()
    work.mkdir()
    made_on_use: dict[str, object] = {"pattern": "bench.*", "nodeType": "queue", "attributes": {}}
    made_on_use |= {"createdOnPublish": True, "createdOnConsume": True}
    host: dict[str, object] = {"name": "default", "type": "BDB", "nodeAutoCreationPolicies": [made_on_use]}
    host["queues"] = [{"name": name, "durable": True} for name in queues]
    config = {
        "name": "bench",
        "modelVersion": "8.0",
        "authenticationproviders": [{"name": "anonymous", "type": "Anonymous"}],
        "ports": [
            {
                "name": "AMQP",
                "port": port,
                "bindingAddress": HOST,
                "authenticationProvider": "anonymous",
                "virtualhostaliases": [{"name": kind, "type": kind} for kind in ALIASES],
            }
        ],
        "virtualhostnodes": [
            {
                "name": "default",
                "type": "JSON",
                "defaultVirtualHostNode": True,
                "virtualHostInitialConfiguration": json.dumps(host),
            }
        ],
    }
    (work / "initial.json").write_text(json.dumps(config))
    log = folder / "broker-j.log"
    environment = {**os.environ, "QPID_HOME": str(home), "QPID_WORK": str(work)}
    command = [str(home / "bin" / "qpid-server"), "-icp", str(work / "initial.json")]
    with started(peer_archives.BROKER_J, command, log, environment) as pid:
        _await_port(port, "Broker-J", pid, log, "BRK-1004")
        yield Broker(peer_archives.BROKER_J, (pid,), HOST, str(port))


@contextmanager
def rabbitmq(folder: Path, bindings: Mapping[str, str] | None = None, queues: Sequence[str] = ()) -> Generator[Broker]:
    """Of Debian's next release, in a folder that is its root, with one quorum queue.

    `queues` are quorum queues, too, and so are those that `bindings` bind by a key to a topic exchange `orders`.
    """
    bound = bindings or {}
    root, port, distribution, mapper = peer_archives.rabbitmq_root(), free_port(), free_port(), free_port()
    data = root / "bench"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    salt = b"\0\0\0\0"
    secret = base64.b64encode(salt + hashlib.sha256(salt + PASSWORD.encode()).digest()).decode()
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    lasting = {"durable": True, "auto_delete": False}
    definitions = {
        "users": [{"name": USER, "password_hash": secret, "tags": ["administrator"]}],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": USER, "vhost": "/", **everything}],
        "queues": [
            {
                "name": name,
                "vhost": "/",
                "durable": True,
                "auto_delete": False,
                "arguments": {"x-queue-type": "quorum"},
            }
            for name in ("bench", *queues, *bound)
        ],
        "exchanges": [{"name": "orders", "vhost": "/", "type": "topic", **lasting, "internal": False, "arguments": {}}],
        "bindings": [
            {"source": "orders", "vhost": "/", "destination": name, "destination_type": "queue", "routing_key": key}
            | {"arguments": {}}
            for name, key in bound.items()
        ],
    }
    (data / "definitions.json").write_text(json.dumps(definitions))
    (data / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = {HOST}:{port}\nload_definitions = /bench/definitions.json\n"
    )
    settings = {
        "HOME": "/bench",
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_CONFIG_FILE": "/bench/rabbitmq.conf",
        "RABBITMQ_MNESIA_BASE": "/bench/data",
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_PID_FILE": "/bench/pid",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_ENABLED_PLUGINS_FILE": "/bench/plugins",
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": HOST,
    }
    log = folder / "rabbitmq.log"
    mapping = ["chroot", str(root), "epmd", "-port", str(mapper), "-address", HOST]
    server = ["chroot", str(root), "/usr/lib/rabbitmq/bin/rabbitmq-server"]
    with (
        started("epmd", mapping, folder / "epmd.log", settings),
        started(peer_archives.RABBITMQ, server, log, settings) as pid,
    ):
        _await_port(port, "RabbitMQ", pid, log)
        erlang = int((data / "pid").read_text())
        options = {**QUEUE, "to": "/queues/bench", "from": "/queues/bench", "user": USER, "password": PASSWORD}
        options |= {"tocap": "", "fromcap": "", "vhost": "vhost:/"}
        version = ", ".join(path.name for path in (root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
        yield Broker(peer_archives.RABBITMQ, (erlang,), HOST, str(port), options, note=version)
    shutil.rmtree(data, ignore_errors=True)


STARTERS = {
    "Penstock": penstock,
    peer_archives.ARTEMIS: artemis,
    peer_archives.RABBITMQ: rabbitmq,
    peer_archives.BROKER_J: broker_j,
}
"""In the order of the rounds."""
