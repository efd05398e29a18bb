"""The `penstock` command: what it offers, how it says no, and that it imports a process only to run it."""

from __future__ import annotations

import dataclasses
import gc
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock_api.failure import CannotRun, Failure, Misuse
from penstock_cli import main
from penstock_cli.extras import needs_extra
from penstock_cli.verbs.observer import observer
from penstock_cli.verbs.operator import operator
from penstock_cli.verbs.size import SIZE
from penstock_observer.settings import ObserverSettings
from penstock_operator.settings import OperatorSettings as OperatorSettings


def penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    command = [sys.executable, "-m", "penstock_cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def called(*arguments: str) -> int:
    """The same within this process, which has imported everything: the exit code. An exception fails the test."""
    try:
        return main.run(arguments)
    except SystemExit as ended:  # of the job's own parser
        assert isinstance(ended.code, int)
        return ended.code


def test_help_names_every_verb_in_order_and_the_exit_codes() -> None:
    said = penstock("--help")
    assert said.returncode == 0
    lines = said.stdout.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    verbs = [line.split()[0] for line in lines if line.startswith("  ") and line[2].isalpha()]
    asking = ["status", "queues", "exchanges", "subscriptions", "connections"]
    handling = ["declare", "export", "ping", "send", "receive", "peek", "purge", "move", "redrive"]
    processes = ["broker", "log", "observer", "lag", "operator", "installation"]
    assert verbs == ["up", *asking, *handling, *processes, "completion", "version"]
    assert "3 this machine lacks something" in " ".join(said.stdout.split())


def test_every_verb_is_said_in_one_line_that_is_whole() -> None:
    assert "..." not in penstock("--help").stdout.partition("Commands:\n")[2]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("verb", ["version", "--help", "completion bash", "lag --help"])
def test_a_full_disk_is_told_in_one_sentence(verb: str, encoding: str) -> None:
    command = f'PYTHONIOENCODING={encoding} "{sys.executable}" -m penstock_cli {verb} > /dev/full'
    said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300)
    assert said.returncode == 1
    cause = "penstock: the output can't be written: No space left on device.\n"
    assert said.stderr == f"{cause}Send it to somewhere else.\n"


@pytest.mark.parametrize("verb", ["version", "--help", "lag --help"])
def test_nothing_is_told_if_the_reader_of_the_output_has_ended(verb: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "penstock_cli", *verb.split()]
    try:
        said = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=300)
    finally:
        os.close(writing)
    assert (said.returncode, said.stderr) == (1, b"")


@pytest.mark.usefixtures("own_collection")
@pytest.mark.parametrize("verb", [["lag"], ["lag", "report"], ["lag", "--watch"], ["lag", "audit"], ["log", "dump"]])
def test_the_short_option_for_help_is_known_everywhere(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert called(*verb, "-h") == 0
    assert "usage" in capsys.readouterr().out.lower()


def test_the_defaults_that_the_observers_help_shows_are_those_of_its_settings() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(ObserverSettings)}
    shown = {option.name: option.default for option in observer.params if option.name in fields}
    assert set(shown) >= {"segment_rows", "segment_bytes", "retain_seconds", "retain_bytes", "results_kept", "ordinal"}
    given = (
        "broker",
        "namespace",
        "broker_socket",
        "ledger",
        "token_file",
        "messages_token_file",
        "account",
        "api_server",
        "tls_cert",
        "tls_key",
    )
    assert {name: value for name, value in shown.items() if name not in given} == {
        name: fields[name] for name in shown if name not in given
    }


def test_the_defaults_that_the_operators_help_shows_are_those_of_its_settings() -> None:
    said = penstock("operator", "--help").stdout
    for field in dataclasses.fields(OperatorSettings):
        if f"--{field.name.replace('_', '-')}" in said and field.default not in ("", (), None, dataclasses.MISSING):
            assert f"({str(field.default).lower()})" in said, field.name


def test_every_setting_of_the_operator_has_an_option() -> None:
    """But for what the cluster says itself: whether its Services have addresses of IPv6."""
    settings = {field.name for field in dataclasses.fields(OperatorSettings)}
    assert settings - {option.name for option in operator.params} == {"has_ipv6"}


def test_version() -> None:
    assert penstock("version").stdout == "0.1.0\n"
    assert penstock("--version").stdout == "penstock 0.1.0\n"


@pytest.mark.parametrize(
    "verb",
    [
        "up",
        "status",
        "queues",
        "exchanges",
        "subscriptions",
        "connections",
        "peek",
        "purge",
        "move",
        "redrive",
        "broker",
        "log",
        "observer",
        "lag",
        "operator",
    ],
)
def test_each_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(verb, "--help") == 0
    assert "usage" in capsys.readouterr().out.lower()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(["nonsense"], "No such command 'nonsense'", id="unknown verb"),
        pytest.param(["broker"], "Missing option '--data'", id="missing option"),
        pytest.param(["subscriptions"], "Missing option '--broker'", id="missing broker"),
        pytest.param(["status"], "It is the broker's management listener, unix:PATH or HOST:PORT: ", id="which broker"),
        pytest.param(
            ["status", "--broker", "unix:"],
            "penstock: the broker can't be asked: unix: names no path.\nGive --broker HOST:PORT",
            id="no path",
        ),
        pytest.param(["broker", "--data", "d", "--listen", "5672"], "'5672' is not HOST:PORT", id="no host"),
        pytest.param(["broker", "--data", "d", "--listen", "h:66666"], "'h:66666' is not HOST:PORT", id="no port"),
        pytest.param(
            ["broker", "--data", "d", "--listen", "a..b:5672"], "'a..b:5672' names a host that can't", id="no name"
        ),
        pytest.param(
            ["broker", "--data", "d", "--listen", "amqp://h:5672"], "leave out amqp://: h:5672", id="URL as a listener"
        ),
        pytest.param(
            ["lag", "--watch", "--observer", "127.0.0.1:8080"], "It must begin with http:// or https://", id="no URL"
        ),
        pytest.param(["broker", "--data", "d", "--management", "m.sock"], "'m.sock' is not an address", id="no socket"),
        pytest.param(["up", ".", "--snapshot-seconds", "0.1"], "0.1 is not in the range 1<=x<=31536000", id="often"),
        pytest.param(["up", "/nonexistent"], "/nonexistent does not exist.\nGive the folder", id="no folder"),
        pytest.param(["operator", "--lag-image", "l", "--broker-image", ""], "setting broker-image", id="image"),
        pytest.param(
            ["observer", "--broker-socket", "s", "--ledger", "l", "--token-file", __file__, "--segment-bytes", "16Mx"],
            "'16Mx' is not a size; write bytes, or a number with a unit, such as 16Mi",
            id="no size",
        ),
        pytest.param(
            ["export", "--broker", "unix:/nonexistent", "--namespace", "a/b", "--broker-name", "Main"],
            "penstock: --broker-name must match the pattern ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$; --namespace must match",
            id="no names of resources",
        ),
        pytest.param(["lag", "--nonsense"], "unrecognized arguments: --nonsense", id="the job's own parser"),
        pytest.param(
            ["lag", "watch"],
            "penstock: there is no `penstock lag watch`.\nThere are `penstock lag report`, `penstock lag audit` and "
            "`penstock lag --watch`; the lag job has options alone.",
            id="an option without its dashes",
        ),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(*arguments) == 2
    assert complaint in capsys.readouterr().err


def test_a_failure_of_the_lag_job_is_told_as_every_other_is(capsys: pytest.CaptureFixture[str]) -> None:
    """By `penstock`, which also knows when nobody reads: `penstock lag --help | head -3` complained."""
    assert called("lag", "--ledger", "/nonexistent", "--no-publish") == 2
    cause = "penstock: it is not said which Broker is meant.\n"
    assert capsys.readouterr().err == f"{cause}Give --broker and --namespace, or --brokers.\n"


def test_wrong_usage_shows_no_traceback() -> None:
    said = penstock("nonsense")
    assert (said.returncode, "Traceback" in said.stderr) == (2, False), said.stderr


def test_bad_settings_are_exit_code_2_and_name_the_key(tmp_path: Path) -> None:
    config = tmp_path / "broker.yaml"
    config.write_text("listeners: [{address: '127.0.0.1:0', colour: red}]\n")
    said = penstock("broker", "--data", str(tmp_path / "data"), "--config", str(config))
    assert said.returncode == 2
    assert "colour" in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("listeners: [{address: 'amqp://127.0.0.1:0'}]", "listeners.0.address: 'amqp://127.0.0.1:0' is a URL, not an"),
        ("listeners: [{address: 'a..b:0'}]", "listeners.0.address: 'a..b:0' names a host that can't be: a part of its"),
        ("maxMessageBytes: sixteen", "maxMessageBytes: 'sixteen' is not a quantity; write a number with an optional"),
        ("maxMessageBytes: 1Ki2", "such as 512Mi or 10Gi"),
        ("idleTimeoutSeconds: soon", "idleTimeoutSeconds: must be a whole number."),
        ("idleTimeoutSeconds: -1", "idleTimeoutSeconds: must be at least 0."),
        ("autoCreate: {queues: 7}", "autoCreate.queues: must be true or false; autoCreate.queues: a map of fields"),
        ("queueOverflow: Never", "queueOverflow: must be 'DropOldest', 'DropNewest' or 'Reject'."),
    ],
)
def test_bad_settings_are_told_in_words_of_the_field(
    line: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "broker.yaml"
    config.write_text(line)
    assert called("broker", "--data", str(tmp_path / "data"), "--config", str(config)) == 2
    told = capsys.readouterr().err
    assert complaint in told
    assert "Input" not in told


@pytest.mark.parametrize(("size", "bytes_"), [("16Mi", 16_777_216), ("1500k", 1_500_000), ("7", 7), (7, 7)])
def test_a_size_is_bytes_or_a_quantity(size: str | int, bytes_: int) -> None:
    assert SIZE.convert(size, None, None) == bytes_


@pytest.mark.parametrize("arguments", [["--data", "/proc/data"], ["--listen", "203.0.113.1:0"]])
def test_up_says_what_this_machine_does_not_give_it(arguments: list[str], tmp_path: Path) -> None:
    """203.0.113.0/24 is for documentation (RFC 5737): no machine has it."""
    folder = Path(__file__).parents[2] / "examples/local"
    said = penstock("up", str(folder), "--data", str(tmp_path / "data"), *arguments)
    assert (said.returncode, "Traceback" in said.stderr) == (3, False), said.stderr


@pytest.mark.parametrize("option", ["--listen", "--observer"])
def test_up_does_not_take_what_another_one_serves_for_its_own(option: str, tmp_path: Path) -> None:
    """It said "observer serves" of an observer that does not know its token."""
    folder = Path(__file__).parents[2] / "examples/local"
    free = ("--listen", "127.0.0.1:0", "--observer", "127.0.0.1:0")
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        said = penstock("up", str(folder), "--data", str(tmp_path / "data"), *free, option, taken)
    assert (said.returncode, said.stdout) == (3, ""), said.stderr
    cause = f"penstock: nothing can listen on {taken} ({option}): Address already in use.\n"
    assert said.stderr == f"{cause}End what listens there, or name another port.\n"


@pytest.mark.parametrize("name", ["up.lock", "broker.yaml", "ledger", "observer.token"])
def test_up_says_that_a_file_of_its_folder_can_t_be_written(name: str, tmp_path: Path) -> None:
    """As in a folder of another user. What can't be written has another form here, because root may write all."""
    place = tmp_path / "data" / name
    if name in ("ledger", "observer.token"):
        (tmp_path / "data").mkdir()
        place.symlink_to("absent/absent")
    else:
        place.mkdir(parents=True)
    said = penstock("up", str(Path(__file__).parents[2] / "examples/local"), "--data", str(tmp_path / "data"))
    assert (said.returncode, "Traceback" in said.stderr) == (3, False), said.stderr
    assert f"the folder {tmp_path / 'data'} can't be used: " in said.stderr


def test_bad_manifests_are_exit_code_2_and_nothing_is_started(tmp_path: Path) -> None:
    said = penstock("up", str(tmp_path), "--data", str(tmp_path / "data"))
    assert said.returncode == 2
    assert f"{tmp_path} holds no manifest." in said.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("failure", "code"),
    [(Failure("cause", "cure"), 1), (Misuse("cause", "cure"), 2), (CannotRun("cause", "cure"), 3)],
)
def test_a_failure_prints_cause_and_cure_and_has_its_exit_code(
    failure: Failure, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise failure

    monkeypatch.setattr(main.penstock.commands["version"], "callback", fail)
    assert main.run(["version"]) == code
    assert capsys.readouterr().err == "penstock: cause\ncure\n"


def test_nothing_is_collected_while_a_process_imports_its_code_and_then_again() -> None:
    assert gc.isenabled()
    with needs_extra("lag"):
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_missing_extra_says_how_to_install_it() -> None:
    with pytest.raises(CannotRun, match=r"pip install 'penstock\[lag\]'"), needs_extra("lag"):
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")


def test_a_missing_module_of_ours_is_a_bug_and_stays_one() -> None:
    with pytest.raises(ModuleNotFoundError), needs_extra("lag"):
        raise ModuleNotFoundError("No module named 'penstock_lag.x'", name="penstock_lag.x")


def test_help_imports_no_process() -> None:
    code = (
        "import sys; from penstock_cli.main import run; run(['--help']); "
        "heavy = {'penstock_broker', 'penstock_observer', 'penstock_lag', 'penstock_operator', 'pyspark', 'cffi', "
        "'asyncio', 'importlib.metadata'}; "
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_broker_starts_without_the_libraries_that_only_some_brokers_need() -> None:
    code = (
        "import sys; from penstock_cli.main import run; run(['broker', '--help']); import penstock_broker.main; "
        "heavy = {'lark', 'jwt', 'cryptography.x509', 'asyncio'}; "
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, "")
