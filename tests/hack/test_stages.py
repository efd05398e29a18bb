"""hack/test runs stages of any length, stops those that hang, and names the test that ended last."""

from __future__ import annotations

import io
import os
import re
import runpy
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from stages.excerpt import excerpt
from stages.progress import Progress, read_progress
from stages.run import counted, next_of, run_stages
from stages.running_line import RunningLine, elapsed
from stages.table import PACKAGES, STAGES, TOO_OLD_IN_DEBIAN, Stage, obstacle

PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider -c /dev/null -p support.progress_plugin"
QUIET_MINUTES = 10.0


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest finds the plugin although it runs without the project's settings."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))


def of_tests(folder: Path, source: str, options: str = "") -> Stage:
    """A stage that runs one file of tests."""
    file = folder / "test_made.py"
    file.write_text(f"import time, pytest\n{source}")
    return Stage("made", "made by a test", f"{PYTEST} {options} {file}", quiet_minutes=QUIET_MINUTES)


def of_python(folder: Path, name: str, code: str) -> Stage:
    """A stage that runs a program in Python and needs one processor."""
    file = folder / f"{name}.py"
    file.write_text(code)
    return Stage(name, "made by a test", f"{sys.executable} -u {file}", quiet_minutes=QUIET_MINUTES, cores=1)


def clock_of(folder: Path, minutes: Callable[[int], float]) -> Callable[[], float]:
    """A clock that goes by the tests that have ended."""
    file = folder / "made.progress"
    return lambda: 60 * minutes(file.read_text().count("end ") if file.exists() else 0)


@pytest.mark.parametrize("options", ["", "-n 2"])
def test_a_stage_that_hangs_is_stopped_and_names_its_last_test(tmp_path: Path, options: str) -> None:
    stage = of_tests(tmp_path, "def test_ends(): pass\ndef test_hangs(): time.sleep(600)\n", options)
    hanging, later = Progress("test_made.py::test_ends", ("test_made.py::test_hangs",)), iter(range(1, 10_000, 9))

    def clock() -> float:
        """It goes on once the one test has ended and the other one runs, which may be in another process."""
        return 60 * next(later) if read_progress(tmp_path / "made.progress") == hanging else 0

    (outcome,) = run_stages([stage], tmp_path, clock=clock)
    assert (outcome.verdict, outcome.failed) == ("FAILED", 1)
    assert "nothing moved for 10 minutes" in outcome.reason
    assert "the last test that ended is test_made.py::test_ends; still running: test_made.py::test_hangs" in (
        outcome.reason
    )


def test_a_slow_stage_that_makes_progress_is_not_stopped(tmp_path: Path) -> None:
    """A test ends when the clock has shown the end of the one before, so that the clock goes on step by step."""
    shown = tmp_path / "shown"
    tests = f"""import pathlib
@pytest.mark.parametrize('number', range(10))
def test_slow(number):
    while int(pathlib.Path({str(shown)!r}).read_text() or 0) < number:
        time.sleep(0.01)
"""

    def minutes(ended: int) -> float:
        shown.write_text(str(ended))
        return 0.3 * QUIET_MINUTES * ended

    minutes(0)
    (outcome,) = run_stages([of_tests(tmp_path, tests)], tmp_path, clock=clock_of(tmp_path, minutes))
    assert (outcome.verdict, outcome.passed, outcome.reason) == ("passed", 10, "")
    assert outcome.seconds == 60 * 3 * QUIET_MINUTES


def test_what_a_test_with_a_limit_of_its_own_exceeds_does_not_stop_the_others(tmp_path: Path) -> None:
    tests = "@pytest.mark.timeout(0.2)\ndef test_hangs(): time.sleep(600)\ndef test_next(): pass\n"
    (outcome,) = run_stages([of_tests(tmp_path, tests)], tmp_path)
    assert (outcome.verdict, outcome.passed, outcome.failed) == ("FAILED", 1, 1)


def test_printing_is_progress(tmp_path: Path) -> None:
    """Each line is printed when the one before is in the log, so that the clock goes on step by step."""
    log = tmp_path / "printing.log"
    code = f"""import pathlib, time
log = pathlib.Path({str(log)!r})
for each in range(30):
    print(each)
    while log.read_text().count(chr(10)) < each + 2:
        time.sleep(0.01)
"""
    (outcome,) = run_stages([of_python(tmp_path, "printing", code)], tmp_path, clock=clock_of_lines(log))
    assert (outcome.verdict, outcome.reason) == ("passed", "")


def clock_of_lines(log: Path) -> Callable[[], float]:
    """A clock that goes by the lines that were printed."""
    return lambda: 60 * 0.3 * QUIET_MINUTES * (log.read_text().count("\n") if log.exists() else 0)


def test_a_failed_stage_hands_on_the_end_of_its_output_and_the_names_of_its_failed_tests(tmp_path: Path) -> None:
    tests = "def test_first(): assert 0, 'the reason'\ndef test_second(): pass\n"
    (outcome,) = run_stages([of_tests(tmp_path, tests)], tmp_path)
    assert "E   AssertionError: the reason" in outcome.excerpt
    assert outcome.excerpt[-1].startswith("1 failed, 1 passed in")
    (outcome,) = run_stages([of_tests(tmp_path, "def test_passes(): pass\n")], tmp_path)
    assert outcome.excerpt == ()


def test_an_excerpt_is_the_last_forty_lines_behind_the_failed_tests_that_stand_before_them() -> None:
    lines = ["FAILED tests/a.py::test_a - no message came", *map(str, range(100)), "x" * 1000, "1 failed in 9.00s"]
    expected = [
        "FAILED tests/a.py::test_a - no message came",
        *map(str, range(62, 100)),
        "x" * 500,
        "1 failed in 9.00s",
    ]
    assert excerpt("\n\n".join(lines)) == expected
    assert excerpt("FAILED tests/a.py::test_a\n\n1 failed in 9.00s\n") == [
        "FAILED tests/a.py::test_a",
        "1 failed in 9.00s",
    ]


def test_a_process_that_is_left_behind_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.run.LEFT_SECONDS", 0.0)
    stage = Stage("made", "", 'sh -c "sleep 600 & echo $!"')
    (outcome,) = run_stages([stage], tmp_path)
    log = (tmp_path / "made.log").read_text()
    left = int(log.splitlines()[1])
    try:
        assert (outcome.verdict, outcome.reason.startswith("exit code 1")) == ("FAILED", True)
        assert "the stage left a process behind" in log
    finally:
        os.kill(left, signal.SIGKILL)


def test_commands_run_up_to_the_first_that_fails_and_a_cluster_goes_down(tmp_path: Path) -> None:
    commands = "false\necho not this\necho down"
    (outcome,) = run_stages([Stage("made", "", commands)], tmp_path)
    assert (outcome.verdict, (tmp_path / "made.log").read_text()) == ("FAILED", "$ false\n")
    (outcome,) = run_stages([Stage("made", "", "false\ntrue\necho down", cluster=True)], tmp_path)
    if os.geteuid() != 0:
        assert (outcome.verdict, outcome.reason.startswith("needs root")) == ("NOT RUN", True)
    else:
        assert (tmp_path / "made.log").read_text() == "$ false\n$ echo down\ndown\n"


def test_two_stages_run_side_by_side_and_print_one_after_the_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each waits for the other's file: they end only if they run at the same time."""
    wait = "import pathlib, sys, time; pathlib.Path('{0}').touch(); print('{2}')"
    wait += "\nwhile not pathlib.Path('{1}').exists(): time.sleep(0.01)\nprint('{2}')\n"
    one, two = tmp_path / "one", tmp_path / "two"
    stages = [
        of_python(tmp_path, "a", wait.format(one, two, "said by a")),
        of_python(tmp_path, "b", wait.format(two, one, "said by b")),
    ]
    outcomes = run_stages(stages, tmp_path, cores=2)
    assert {outcome.stage: outcome.verdict for outcome in outcomes} == {"a": "passed", "b": "passed"}
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("said")]
    assert lines in (["said by a"] * 2 + ["said by b"] * 2, ["said by b"] * 2 + ["said by a"] * 2)


def test_on_a_terminal_one_line_tells_what_runs_and_is_erased_before_others() -> None:
    now, out = [0.0], io.StringIO()
    line = RunningLine(out, 20, lambda: now[0])
    for seconds in (0.0, 0.5, 1.0):
        now[0] = seconds
        line.show(lambda: f"== running: a {elapsed(now[0])} and more")
    line.clear()
    line.clear()
    assert out.getvalue() == "\r\x1b[K== running: a 0:00 \r\x1b[K== running: a 0:01 \r\x1b[K"


def test_in_a_log_a_line_is_added_after_thirty_seconds_in_which_nothing_was_printed() -> None:
    now, out = [0.0], io.StringIO()
    line = RunningLine(out, None, lambda: now[0])
    line.clear()
    for second in range(1, 121):
        now[0] = float(second)
        if second == 45:
            line.clear()
        line.show(lambda: elapsed(now[0]))
    assert out.getvalue() == "0:30\n1:15\n1:45\n"


def test_it_is_said_which_stages_run_for_how_long_and_how_far_each_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The program ends, and with it the test, once it has been said; the clock goes on ten seconds with each look."""
    go = tmp_path / "go"
    wait = f"import pathlib, time\n    while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)"
    printing = f"print('package 3 of 9')\nif True:\n    {wait}"
    waiting = f"def test_a(): pass\ndef test_b():\n    {wait}"
    stages = [replace(of_tests(tmp_path, waiting), cores=1), of_python(tmp_path, "printing", printing)]
    shown: list[str] = []

    def clock() -> float:
        shown.append(capfd.readouterr().out)
        if re.search(
            r"^== running: made \d+:\d0 \(1 test ended\), printing \d+:\d0 \(package 3 of 9\)$", shown[-1], re.M
        ):
            go.touch()
        return 10.0 * len(shown)

    outcomes = run_stages(stages, tmp_path, cores=2, clock=clock)
    assert {outcome.stage: outcome.verdict for outcome in outcomes} == {"made": "passed", "printing": "passed"}
    assert "running" not in shown[0]


def test_a_single_stage_that_prints_nothing_is_named_on_a_line_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The program ends once that was said behind what it has printed, for which it may take long to start."""
    go = tmp_path / "go"
    code = f"import pathlib, time\nprint('...', end='')\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)"
    shown: list[str] = []

    def clock() -> float:
        shown.append(capfd.readouterr().out)
        if "== running: " in shown[-1] and "(...)" in shown[-1]:
            go.touch()
        return 1.0 * len(shown)

    (outcome,) = run_stages([of_python(tmp_path, "silent", code)], tmp_path, clock=clock)
    assert outcome.verdict == "passed"
    assert re.search(r"\.\.\.\n== running: silent \d+:\d\d \(\.\.\.\)\n", "".join(shown))


def test_who_is_not_root_and_asks_for_an_installation_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_lacking = runpy.run_path(str(Path(__file__).parents[2] / "hack" / "test"))["install_lacking"]
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(os, "geteuid", lambda: 10001)
    install_lacking(
        [Stage("made", "", "true", programs=("mvn", "cargo")), Stage("other", "", "true", programs=("cc",))]
    )
    assert capsys.readouterr().err == (
        "hack/test: --install needs root, so nothing is installed. As root: apt-get install -y gcc libc6-dev maven\n"
        "hack/test: without these packages the stages that need them are NOT RUN; the others run now.\n"
    )
    install_lacking([Stage("made", "", "true", programs=("cargo",))])
    assert capsys.readouterr().err == ""


def test_what_a_stage_has_used_of_processors_is_its_own_and_its_childrens(tmp_path: Path) -> None:
    spins = "import time\nwhile time.process_time() < 0.3: pass\n"
    spinning = f"import subprocess, sys\n{spins}subprocess.run([sys.executable, '-c', {spins!r}])\n"
    stages = [of_python(tmp_path, "spinning", spinning), Stage("idle", "", "true", cores=1)]
    used = {outcome.stage: outcome.busy_seconds for outcome in run_stages(stages, tmp_path)}
    assert used["spinning"] >= 0.6
    assert used["idle"] < 0.3


@pytest.mark.parametrize(("chosen", "told"), [(None, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"), ("-Xmx3g", "-Xmx3g")])
def test_maven_starts_quickly_unless_the_user_has_chosen_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None, told: str
) -> None:
    monkeypatch.delenv("MAVEN_OPTS", raising=False)
    if chosen is not None:
        monkeypatch.setenv("MAVEN_OPTS", chosen)
    run_stages([of_python(tmp_path, "asking", "import os; print(os.environ['MAVEN_OPTS'])")], tmp_path)
    assert told in (tmp_path / "asking.log").read_text().splitlines()


def test_two_builds_by_maven_never_run_side_by_side(tmp_path: Path) -> None:
    make = f"test ! -e {tmp_path}/lock\ntouch {tmp_path}/lock\nsleep 0.2\nrm {tmp_path}/lock"
    stages = [Stage(name, "", make, cores=1, maven=True) for name in ("a", "b")]
    assert [outcome.verdict for outcome in run_stages(stages, tmp_path, cores=2)] == ["passed", "passed"]


NEEDS = {
    "none": Stage("none", "", "true"),
    "one": Stage("one", "", "true", cores=1),
    "half": Stage("half", "", "true", cores=0.5),
    "two": Stage("two", "", "true", cores=2),
    "maven": Stage("maven", "", "true", cores=0.5, maven=True),
    "venv": Stage("venv", "", "true", cores=1, makes_venv=True, needs_venv=False),
    "images": Stage("images", "", "true", cores=1, cluster=True, needs_venv=False),
    "cluster": Stage("cluster", "", "true", cores=0.5, cluster=True),
}


@pytest.mark.parametrize(
    ("waiting", "running", "first"),
    [
        ("", "one", None),
        ("one", "", "one"),
        ("one", "one", "one"),
        ("one", "one half", "one"),
        ("one", "one one", None),
        ("two half", "one", "half"),
        ("two", "half", "two"),
        ("two", "one", None),
        ("none", "", "none"),
        ("none", "half", None),
        ("one", "none", None),
        ("maven one", "maven", "one"),
        ("maven", "maven", None),
        ("images cluster", "", "images"),
        ("cluster one", "images", "one"),
        ("images cluster half", "one one", "half"),  # the cluster waits for its images, which do not fit yet
        ("images cluster", "one one", None),
        ("venv images cluster one", "", "venv"),
        ("images cluster one", "venv", "images"),
        ("one", "venv", None),
        ("half cluster", "venv images", None),
        ("venv cluster one", "images", "venv"),
        ("one cluster", "images", "one"),
    ],
)
def test_which_stage_starts_next_on_two_and_a_half_processors(waiting: str, running: str, first: str | None) -> None:
    stage = next_of([NEEDS[name] for name in waiting.split()], [NEEDS[name] for name in running.split()], 2.5)
    assert (stage and stage.name) == first


def test_without_what_env_makes_only_stages_run_that_do_not_need_it(tmp_path: Path) -> None:
    stages = [
        Stage("venv", "", "false", cores=1, makes_venv=True, needs_venv=False),
        Stage("bare", "", "true", cores=1, needs_venv=False),
        Stage("later", "", "true", cores=1, needs_venv=False),
        Stage("other", "", f"touch {tmp_path}/ran", cores=1),
    ]
    outcomes = run_stages(stages, tmp_path, cores=2)
    assert sorted((outcome.stage, outcome.verdict) for outcome in outcomes) == [
        ("bare", "passed"),
        ("later", "passed"),
        ("venv", "FAILED"),
    ]
    assert not (tmp_path / "ran").exists()


def test_stages_of_the_cluster_go_before_others_where_both_want_a_processor(tmp_path: Path) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    # The program that a command starts has the priority, too: it is inherited.
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import os; print(os.nice(0))'], check=True)"
    for cluster, niceness in ((True, own), (False, min(19, own + 5))):
        stage = replace(of_python(tmp_path, f"nice-{cluster}", code), cluster=cluster)
        run_stages([stage], tmp_path)
        assert (tmp_path / f"nice-{cluster}.log").read_text().splitlines()[-1] == str(niceness)


def test_env_comes_first_and_images_before_the_cluster() -> None:
    names = [stage.name for stage in STAGES]
    assert names[0] == "env"
    assert [stage.name for stage in STAGES if stage.makes_venv] == ["env"]
    assert {stage.name for stage in STAGES if not stage.needs_venv} == {"env", "images"}
    assert names.index("images") < names.index("cluster")
    assert {stage.name for stage in STAGES if stage.cluster} == {"images", "cluster"}


def test_what_the_progress_file_tells(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    assert read_progress(file) == Progress("", ())
    assert str(read_progress(file)) == "no test has ended"
    file.write_text("7.00 start a\n7.00 start b[1 2]\n7.25 end a\n8.00 start c\n9.50 end")
    assert read_progress(file) == Progress("a", ("b[1 2]", "c"))


def test_tests_are_counted_by_the_closing_lines() -> None:
    assert counted("5 passed\n3 passed, 1 failed, 2 errors in 1.20s\n== 4 passed in 61.00s (0:01:01) ==\n") == (7, 3)


def test_a_program_that_lacks_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert obstacle(Stage("made", "", "true", programs=("cargo", "cc", "go", "npm"))) == (
        "not on this machine: cargo, cc, go, npm; Debian packages: gcc libc6-dev npm; "
        "not as a Debian package: Rust 1.85 or newer, by rustup; Go 1.26 or newer"
    )
    assert obstacle(Stage("made", "", "true", programs=("npm",))) == ("not on this machine: npm; Debian packages: npm")


def test_who_builds_for_the_cluster_or_runs_it_has_to_be_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 10001)
    assert obstacle(Stage("made", "", "true")) == ""
    for stage in (Stage("made", "", "true", cluster=True), Stage("made", "", "true", root=True)):
        assert obstacle(stage) == "needs root, for network namespaces, containerd and buildah"


def test_a_package_is_a_name_that_apt_get_takes() -> None:
    names = [name for each in PACKAGES.values() for name in each.split()]
    assert [name for name in names if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]+", name)] == []
    asked_for = {program for stage in STAGES for program in stage.programs}
    assert asked_for - PACKAGES.keys() - TOO_OLD_IN_DEBIAN.keys() == set()
