"""`penstock send` and `penstock receive`, as a user types them, against a broker process: also with SCRAM and TLS."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.certificates import Authority
from support.command_forks import penstock
from support.proton_client import SECONDS, Browsing, arrived, connected, publish, take

from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_cli.received_message import read_message
from penstock_cli.verbs.transfer import ahead_of

MEBI = 1024 * 1024
LONG_ENOUGH = "3"
"""Seconds in which the next message certainly comes on a busy machine. They pass once in each test that names them."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


def test_what_is_sent_is_received(broker: BrokerProcess) -> None:
    at = ("--broker", broker.url)
    sent = penstock("send", "letters", "one", "two", "--subject", "s", "--property", "n=7", "--property", "r=eu", *at)
    assert (sent.returncode, sent.stdout) == (0, "2 sent\n"), sent.stderr
    first = penstock("receive", "letters", "--count", "1", "--selector", "n > 6 AND r = 'eu'", *at)
    assert (first.returncode, first.stdout) == (0, "one\n"), first.stderr
    second = json.loads(penstock("receive", "letters", "--count", "1", "-o", "json", *at).stdout)
    assert second == {
        "subject": "s",
        "durable": True,
        "priority": 4,
        "deliveryCount": 0,
        "applicationProperties": {"n": 7, "r": "eu"},
        "body": "two",
    }
    nothing = penstock("receive", "letters", "--wait", "0.1", *at)
    assert (nothing.returncode, nothing.stdout) == (0, "")


def test_lines_of_the_input_are_sent_and_a_browser_leaves_them(broker: BrokerProcess) -> None:
    at = ("--broker", broker.url)
    assert penstock("send", "lines", *at, typed="a\nb\nc\n").stdout == "3 sent\n"
    for _ in range(2):
        assert penstock("receive", "lines", "--browse", "--count", "3", *at).stdout == "a\nb\nc\n"
    few = penstock("receive", "lines", "--count", "4", "--wait", LONG_ENOUGH, *at)
    assert (few.returncode, few.stdout) == (1, "a\nb\nc\n")
    assert "3 of 4 messages came" in few.stderr


def test_an_empty_body_is_a_message_and_an_empty_line_is_one_too(broker: BrokerProcess) -> None:
    at = ("--broker", broker.url)
    assert penstock("send", "empty", "", *at).stdout == "1 sent\n"
    assert penstock("send", "empty", *at, typed="\n").stdout == "1 sent\n"
    received = penstock("receive", "empty", "--count", "2", "-o", "json", *at).stdout.splitlines()
    assert [json.loads(line)["body"] for line in received] == ["", ""]


def test_more_messages_than_are_asked_for_at_once(broker: BrokerProcess) -> None:
    at = ("--broker", broker.url)
    bodies = [str(number) for number in range(250)]
    assert penstock("send", "many", *at, typed="\n".join(bodies)).stdout == "250 sent\n"
    assert penstock("receive", "many", "--wait", LONG_ENOUGH, *at).stdout.split() == bodies


def left_in(broker: BrokerProcess, queue: str) -> list[object]:
    """The bodies of all messages of a queue, which stay there."""
    with connected(broker.url) as connection:
        receiver = connection.create_receiver(queue, credit=0, options=Browsing())
        receiver.link.drain(1000)
        connection.wait(lambda: receiver.link.credit == 0, timeout=SECONDS)
        assert receiver.fetcher is not None
        return arrived(receiver, len(receiver.fetcher.incoming))


def shell(line: str, broker: BrokerProcess) -> subprocess.CompletedProcess[str]:
    """Run a command line with `penstock` in it, which finds the broker by itself."""
    script = f'penstock() {{ "{sys.executable}" -m penstock_cli "$@"; }}\n{line}'
    environment = {**os.environ, "PENSTOCK_URL": broker.url}
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=300, env=environment)


def test_what_was_not_printed_stays_when_the_reader_ends_and_nobody_complains(broker: BrokerProcess) -> None:
    bodies = [f"{number}{'.' * 10_000}" for number in range(50)]
    penstock("send", "read-in-part", "--broker", broker.url, typed="\n".join(bodies))
    said = shell("penstock receive read-in-part --follow | (read one; echo $one)", broker)
    assert (said.stdout, said.stderr) == (f"{bodies[0]}\n", "")
    left = left_in(broker, "read-in-part")
    assert left == bodies[len(bodies) - len(left) :]
    # A pipe holds 64 KiB that its reader may leave unread.
    assert len(left) >= 40


def test_what_can_not_be_printed_stays(broker: BrokerProcess) -> None:
    penstock("send", "unprinted", "one", "two", "--broker", broker.url)
    full = shell("penstock receive unprinted > /dev/full", broker)
    assert (full.returncode, full.stderr.splitlines()[0]) == (
        1,
        "penstock: the output can't be written: No space left on device.",
    )
    closed_output = shell("penstock receive unprinted >&-", broker)
    assert (closed_output.returncode, "there is no output to print messages to" in closed_output.stderr) == (2, True)
    assert left_in(broker, "unprinted") == ["one", "two"]


def test_letters_that_the_output_lacks_do_not_end_it(broker: BrokerProcess) -> None:
    penstock("send", "foreign-letters", "\u20ac 7", "--broker", broker.url)
    said = shell("PYTHONIOENCODING=latin-1 penstock receive foreign-letters --count 1", broker)
    assert (said.returncode, said.stdout) == (0, "\\u20ac 7\n"), said.stderr


@pytest.mark.parametrize(
    "typed", ["send q $'\\xff'", "send q a --subject $'\\xff'", "receive $'\\xff'", "receive q --selector $'\\xff'"]
)
def test_what_is_not_text_is_wrong_usage_and_not_a_fault_of_the_broker(broker: BrokerProcess, typed: str) -> None:
    said = shell(f"penstock {typed}", broker)
    assert (said.returncode, said.stderr.splitlines()) == (
        2,
        ["penstock: a value can't be sent: '\\udcff' cannot be written as str.", "Write names and texts in UTF-8."],
    )


def test_a_password_that_no_login_can_have_is_told(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("two\nlines\n")
    login = ("--user", "ann", "--password-file", str(tmp_path / "password"))
    said = penstock("send", "q", "a", *login, "--broker", broker.url)
    assert (said.returncode, "the broker refused the login of ann" in said.stderr) == (1, True), said.stderr
    assert "Traceback" not in said.stderr


def running(broker: BrokerProcess, *arguments: str) -> subprocess.Popen[str]:
    """The command while it runs, between pipes, as it runs in a terminal: Ctrl-C reaches it."""
    command = [sys.executable, "-m", "penstock_cli", *arguments, "--broker", broker.url]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_send_says_after_ctrl_c_how_many_it_sent(broker: BrokerProcess) -> None:
    with running(broker, "send", "cut-short") as sending:
        assert sending.stdin is not None
        sending.stdin.write("one\ntwo\n")
        sending.stdin.flush()
        received = penstock("receive", "cut-short", "--count", "2", "--wait", "60", "--broker", broker.url)
        assert received.stdout == "one\ntwo\n"
        sending.send_signal(signal.SIGINT)
        out, complaint = sending.communicate("three\n", timeout=60)
    assert (sending.returncode, out, complaint) == (1, "", "2 sent before this:\n\npenstock: interrupted\n")


def test_send_says_how_many_the_broker_took_before_it_refused_one(broker: BrokerProcess) -> None:
    made = ("declare", "queue", "small", "--max-messages", "3", "--broker", broker.management)
    assert penstock(*made).returncode == 0
    said = penstock("send", "small", "--broker", broker.url, typed="1\n2\n3\n4\n5\n")
    assert (said.returncode, said.stdout, said.stderr.splitlines()[0]) == (1, "", "3 sent before this:")


def test_ctrl_c_before_count_messages_came_is_a_failure_and_the_end_of_follow(broker: BrokerProcess) -> None:
    for options, code in ((("--count", "2", "--wait", "60"), 1), (("--follow",), 0)):
        penstock("send", "interrupted", "one", "--broker", broker.url)
        with running(broker, "receive", "interrupted", *options) as receiving:
            assert receiving.stdout is not None
            assert receiving.stdout.readline() == "one\n"
            receiving.send_signal(signal.SIGINT)
            receiving.communicate(timeout=60)
        assert receiving.returncode == code
    assert left_in(broker, "interrupted") == []


def test_an_input_that_can_not_be_read_is_no_fault_of_the_broker(broker: BrokerProcess) -> None:
    said = shell("penstock send nowhere 0> /dev/null", broker)
    assert (said.returncode, said.stderr.splitlines()[0]) == (
        1,
        "penstock: the input can't be read: Bad file descriptor.",
    )


def test_a_closed_input_is_told(broker: BrokerProcess) -> None:
    said = shell("penstock send nowhere <&-", broker)
    assert (said.returncode, "there is neither a BODY nor an input" in said.stderr) == (2, True), said.stderr


def test_a_subscription_keeps_what_is_published_to_its_exchange(broker: BrokerProcess) -> None:
    at = ("--broker", broker.url)
    penstock("receive", "topic://news", "--subscription", "desk", "--wait", "0.1", *at)
    assert penstock("send", "topic://news/eu", "fire", *at).stdout == "1 sent\n"
    got = penstock("receive", "topic://news", "--subscription", "desk", "--count", "1", *at)
    assert (got.returncode, got.stdout) == (0, "fire\n"), got.stderr


def test_a_long_message_goes_in_parts(broker: BrokerProcess) -> None:
    text = "x" * 300_000
    assert penstock("send", "long", "--broker", broker.url, typed=text).returncode == 0
    assert penstock("receive", "long", "--count", "1", "--broker", broker.url).stdout == f"{text}\n"


@pytest.mark.parametrize(
    ("longest", "wanted"), [(0, 1), (1, 100), (100 * 1024, 100), (MEBI, 16), (9 * MEBI, 1), (100 * MEBI, 1)]
)
def test_few_long_messages_are_on_their_way_at_once(longest: int, wanted: int) -> None:
    assert ahead_of(longest) == wanted


def test_a_single_message_comes_until_it_is_known_how_long_they_are(broker: BrokerProcess) -> None:
    """Nobody reads what is printed, so the first message is the only one that ever comes."""
    typed = f"{'x' * MEBI}\n" * 3
    assert penstock("send", "huge", "--broker", broker.url, typed=typed).stdout == "3 sent\n"
    with running(broker, "receive", "huge", "--follow") as receiving:
        assert receiving.stdout is not None
        assert receiving.stdout.read(1) == "x"
        listed = penstock("queues", "--json", "--broker", broker.management).stdout.splitlines()
        (huge,) = [each for each in map(json.loads, listed) if each["name"] == "huge"]
        assert huge["inFlight"] == 1
        receiving.kill()


def test_other_clients_understand_it(broker: BrokerProcess) -> None:
    penstock("send", "foreign", "hello", "--id", "m1", "--priority", "7", "--broker", broker.url)
    with connected(broker.url) as connection:
        receiver = connection.create_receiver("foreign")
        assert take(receiver, 1) == [("hello", 0)]
        publish(connection.create_sender("foreign"), [17])
    assert penstock("receive", "foreign", "--count", "1", "--broker", broker.url).stdout == "17\n"


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["send", "a", "b", "--property", "n"], 2, "'n' is not a property.\nWrite NAME=VALUE"),
        (["send", "a", "b", "c", "--id", "m"], 2, "--id is for a single message."),
        (
            ["send", "", "b"],
            2,
            "Invalid value for 'ADDRESS': it is empty; name a queue, a subscription, or EXCHANGE/KEY",
        ),
        (["receive", ""], 2, "Invalid value for 'ADDRESS': it is empty; name a queue, a subscription, or EXCHANGE/KEY"),
        (["send", "a", "b", "--broker", "http://h:1"], 2, "'http://h:1' is not an address of a broker.\nWrite amqp://"),
        (["send", "a", "b", "--ttl", "99999999"], 2, "99999999.0 is not in the range"),
        (["send", "a", "b", "--broker", "amqp://h:x"], 2, "'amqp://h:x' is not an address of a broker."),
        (
            ["send", "a", "b", "--broker", "127.0.0.1:1"],
            1,
            "nothing listens there.\nCheck that it is running, and that",
        ),
    ],
)
def test_what_can_not_be_done_is_told(arguments: list[str], code: int, complaint: str) -> None:
    said = penstock(*arguments)
    assert (said.returncode, complaint in said.stderr) == (code, True), said.stderr
    assert "Traceback" not in said.stderr


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that lets in `ann` alone, by SCRAM without TLS, and by every mechanism with TLS. It makes no queues."""
    folder = tmp_path_factory.mktemp("closed")
    authority = Authority(folder)
    issued = authority.issue("localhost")
    authority.ca.rename(folder / "ca.crt")
    tls = {"certificate": str(issued.certificate), "key": str(issued.key)}
    listeners = [
        {"name": "amqp", "address": "127.0.0.1:0", "saslMechanisms": ["SCRAM-SHA-256"]},
        {"name": "amqps", "address": "localhost:0", "tls": tls},
    ]
    settings: dict[str, object] = {
        "authentication": {"users": {"ann": "secret"}, "scramIterations": 4096},
        "listeners": listeners,
        "autoCreate": {"queues": {"names": ["q*"]}},
    }
    (folder / "password").write_text("secret\n")
    (folder / "wrong").write_text("wrong\n")
    with BrokerProcess(folder / "data", dev=False, listen=(), settings=settings) as broker:
        yield broker


def login(broker: BrokerProcess, password: str = "password") -> list[str]:
    return ["--user", "ann", "--password-file", str(broker.data.parent / password)]


def test_scram_lets_in_without_tls(closed: BrokerProcess) -> None:
    sent = penstock("send", "q1", "one", "--broker", closed.url, *login(closed))
    assert (sent.returncode, sent.stdout) == (0, "1 sent\n"), sent.stderr
    wrong = penstock("send", "q1", "one", "--broker", closed.url, *login(closed, "wrong"))
    assert (wrong.returncode, "the broker refused the login of ann" in wrong.stderr) == (1, True), wrong.stderr
    nobody = penstock("send", "q1", "one", "--broker", closed.url)
    assert (nobody.returncode, "the broker refused the login of anonymous" in nobody.stderr) == (1, True)


def test_tls_wants_the_ca(closed: BrokerProcess) -> None:
    port = closed.addresses["amqps"].rpartition(":")[2]
    at = ("--broker", f"amqps://localhost:{port}")
    ca = ("--ca-file", str(closed.data.parent / "ca.crt"))
    sent = penstock("send", "q2", "one", *at, *ca, *login(closed))
    assert (sent.returncode, sent.stdout) == (0, "1 sent\n"), sent.stderr
    untrusted = penstock("send", "q2", "one", *at, *login(closed))
    assert (untrusted.returncode, "its certificate is not trusted: " in untrusted.stderr) == (1, True)
    assert "\nGive --ca-file with the CA that has signed it, and a host" in untrusted.stderr
    plain = penstock("send", "q2", "one", "--broker", f"amqp://localhost:{port}", *login(closed))
    assert "before authentication was done; it may expect TLS." in plain.stderr


def test_a_refused_link_names_the_brokers_reason(closed: BrokerProcess) -> None:
    said = penstock("receive", "nowhere", "--broker", closed.url, *login(closed))
    assert said.returncode == 1
    assert "the broker refuses: " in said.stderr
    assert "Condition: amqp:not-found" in said.stderr


def test_a_body_can_not_trick_a_terminal() -> None:
    assert read_message(encode_message(Message(body="a\x1b[2Jb\nc"))).line() == "a [2Jb c"


def test_data_sections_are_one_body() -> None:
    encoded = bytes.fromhex("005375a003") + b"abc" + bytes.fromhex("005375a003") + b"def"
    assert read_message(encoded).body == "abcdef"
    assert read_message(bytes.fromhex("005375a002fffe")).body == "fffe"


def test_what_is_no_message_is_shown_in_hexadecimal() -> None:
    assert read_message(bytes.fromhex("00537f01")).body == "00537f01"


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])  # in most locales; in C.UTF-8
def test_input_that_is_not_text_is_refused(broker: BrokerProcess, errors: str) -> None:
    command = [sys.executable, "-m", "penstock_cli", "send", "not-text", "--broker", broker.url]
    environment = {**os.environ, "PYTHONIOENCODING": f"utf-8:{errors}"}
    sent = subprocess.run(command, capture_output=True, timeout=300, input=b"caf\xe9\n", env=environment)
    assert sent.returncode == 2, sent.stderr
    assert sent.stderr.decode().startswith("penstock: the input is not text in UTF-8.\n")


def test_input_that_is_not_text_behind_what_was_sent_is_a_failure(broker: BrokerProcess) -> None:
    with running(broker, "send", "text-first") as sending:
        assert sending.stdin is not None
        sending.stdin.write("tea\n")
        sending.stdin.flush()
        received = penstock("receive", "text-first", "--count", "1", "--wait", "60", "--broker", broker.url)
        assert received.stdout == "tea\n"
        os.write(sending.stdin.fileno(), b"caf\xe9\n")
        _, complaint = sending.communicate(timeout=60)
    assert (sending.returncode, complaint.splitlines()[:2]) == (
        1,
        ["1 sent before this:", "penstock: the input is not text in UTF-8."],
    )
