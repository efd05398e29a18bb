"""The stages of hack/test in their order, what each runs, and what it needs."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass

__all__ = ["PACKAGES", "STAGES", "TOO_OLD_IN_DEBIAN", "Stage", "obstacle"]

PYTEST = ".venv/bin/python -m pytest -q -p no:cacheprovider"
_COMMANDS = (
    "bench",
    "charts",
    "cluster",
    "crds",
    "demo",
    "images",
    "options",
    "pictures",
    "release",
    "rules",
    "states",
    "test",
)
COMMANDS = " ".join(f"hack/{name}" for name in _COMMANDS)
SOAKS = " ".join(
    f"hack/soak/{name}"
    for name in (
        "alerts",
        "chaos",
        "crash",
        "dashboard",
        "first_steps",
        "fuzz",
        "large",
        "machine",
        "many",
        "memory",
        "migrate",
        "mixed",
        "nodes",
        "reach",
        "sparse",
        "volumes",
    )
)
HACK = "hack/benching hack/drawing hack/in_venv.py hack/kube hack/releasing hack/stages"
CODE = f"broker operator tests {HACK} {SOAKS} {COMMANDS}"
FAST = " and ".join(
    f"not {marker}" for marker in ("browser", "built", "clients", "cluster", "crash", "fuzz", "jms", "spark")
)
ON_THE_WIRE = "tests/amqp tests/broker/loop tests/broker/wire tests/broker/machine"
ASKED_ENGINE = "tests/native/test_engine_choice.py::test_the_tests_run_with_the_engine_that_was_asked_for"
JAVA = ("java", "mvn")
PACKAGES = {  # program -> Debian package
    "cc": "gcc libc6-dev",
    "chromium": "chromium",
    "java": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "node": "nodejs",
    "npm": "npm",
    "valgrind": "valgrind",
}
ALL_CORES = float("inf")
"""Of a stage that runs alone."""
TOO_OLD_IN_DEBIAN = {"cargo": "Rust 1.85 or newer, by rustup", "go": "Go 1.26 or newer"}
"""What the packages of Debian 12 are too old for: program -> what a person has to install."""


@dataclass(frozen=True)
class Stage:
    """One line of the table. `commands` has one command per line; they run in order, up to the first that fails."""

    name: str
    about: str
    commands: str
    programs: tuple[str, ...] = ()
    """Programs that have to be on the PATH."""
    quiet_minutes: float = 15
    """The stage is stopped as hanging when no test has ended and nothing was printed for this time. It must be longer
    than the longest silent step on a slow machine, since a stage that is merely slow has to pass, and than the limit
    of one test (in pyproject.toml and tests/conftest.py), so that a test that hangs is ended alone."""
    cores: float = ALL_CORES
    """How many processors it keeps busy, on average. Stages run side by side while these add up to what is there."""
    maven: bool = False
    """It runs the tests of tests/joram by Maven. Two such stages never run at the same time: they write one folder."""
    cluster: bool = False
    """It needs a Kubernetes node of hack/cluster, and so root; its last command takes the node down. Such stages run
    one after the other, in their order."""
    root: bool = False
    """It needs root, as whoever builds for the cluster does."""
    whole: bool = False
    """`--fast` leaves it out although it needs no cluster."""
    makes_venv: bool = False
    """Until it has ended, no stage starts that needs what it makes; if it fails, none does."""
    needs_venv: bool = True
    """Whether it needs what `env` makes. Without that, it runs beside it."""

    def split_commands(self) -> list[list[str]]:
        """The commands, split into words."""
        return [shlex.split(line) for line in self.commands.strip().splitlines()]

    @property
    def runs_pytest(self) -> bool:
        """Whether tests have to be counted."""
        return "-m pytest" in self.commands


STAGES = (
    # pip writes to a file of its own, and downloads more than a gigabyte when its cache is empty.
    Stage(
        "env",
        "locked dependencies in .venv",
        "hack/env",
        quiet_minutes=30,
        cores=1,
        makes_venv=True,
        needs_venv=False,
    ),
    # The longest way through the stages comes first: the cluster can only run when its images are there.
    Stage(
        "images",
        "Kubernetes and its Spark operator from their Go modules, our images",
        """
        hack/cluster build --yes
        hack/images build
        """,
        ("go",),
        quiet_minutes=40,  # a compiler is silent, and Kubernetes is large
        cores=1.5,
        cluster=True,
        needs_venv=False,  # both commands run in any Python
    ),
    Stage(
        "cluster",
        "charts, operator and Spark on a real Kubernetes node",
        f"""
        hack/cluster up --yes
        {PYTEST} -m cluster tests
        hack/cluster down
        """,
        ("go", *JAVA),
        quiet_minutes=45,  # not shorter than the limit of one test, whose end the stage waits for
        cores=1,
        cluster=True,
    ),
    Stage(
        "style",
        "ruff, import contracts, generated files",
        f"""
        .venv/bin/ruff format --check {CODE}
        .venv/bin/ruff check {CODE}
        .venv/bin/lint-imports
        .venv/bin/python hack/crds --check
        .venv/bin/python hack/rules --check
        .venv/bin/python hack/options --check
        .venv/bin/python hack/charts --check
        """,
        cores=1,
    ),
    Stage(
        "rules",
        "every line of the rules, reached from their own tests",
        """
        .venv/bin/coverage run --data-file=build/coverage --source=penstock_core -m pytest -q tests/core
        .venv/bin/coverage report --data-file=build/coverage --fail-under=100 --skip-covered
        """,
        cores=1,
    ),
    Stage(
        "fast",
        "wire, log, broker, observer, operator",
        f"{PYTEST} -n 2 --dist worksteal -m '{FAST}' --ignore=tests/core tests",
        cores=1.5,
    ),
    # Neither checker prints anything before it has finished.
    Stage(
        "types",
        "mypy strict and pyright strict, tests included",
        """
        .venv/bin/mypy broker operator tests
        .venv/bin/pyright
        """,
        quiet_minutes=30,
        cores=1,
    ),
    Stage(
        "count",
        "instructions per message against the baseline",
        "hack/bench count --short",
        ("valgrind", "cc"),
        cores=1,
    ),
    Stage(
        "fuzz",
        "input from unknown clients, seeded: two minutes of hack/soak/fuzz; the C under sanitizers",
        f"{PYTEST} -m fuzz tests/fuzz tests/native",
        ("cc",),
        quiet_minutes=25,  # one test is one target with all its inputs
        cores=1,
    ),
    # `clients` is the longest of those that remain, and goes beside `cluster` and `jms` if Kubernetes had to be built:
    # behind them nothing long is left to run alone.
    Stage(
        "clients",
        "the examples in Python, Node, Go, Java and Rust against a broker; the page in a browser",
        f"{PYTEST} -m 'clients or browser' tests",
        ("node", "npm", "go", "cargo", "chromium", *JAVA),
        quiet_minutes=20,  # npm, Go, Cargo and Maven download in silence
        cores=1,
        whole=True,
    ),
    Stage(
        "jms",
        "JORAM's conformance tests and our own with Qpid JMS",
        f"{PYTEST} -s -m 'jms and not cluster' tests",
        JAVA,
        quiet_minutes=20,  # Maven downloads in silence; then each Java class that ends is progress
        cores=0.5,  # it waits for messages that must not come
        maven=True,
    ),
    # Beside the cluster, whose stage is the longest: no node is needed here. What has been built is not built again.
    Stage(
        "built",
        "charts as Helm renders them, a release, an image that is pushed",
        f"""
        hack/cluster build --yes
        {PYTEST} -m 'built and not cluster' tests
        """,
        ("go", "cc"),
        quiet_minutes=40,  # as for the images, which are built here if they are not there
        cores=1,
        root=True,
        whole=True,
    ),
    Stage(
        "crash",
        "kill -9 under load, on every form of file layer",
        f"{PYTEST} -m crash tests",
        quiet_minutes=20,
        cores=1,
    ),
    Stage(
        "spark",
        "the lag job on a real Spark",
        f"{PYTEST} -m spark tests",
        ("java",),
        quiet_minutes=20,
        cores=1,
    ),
    # The engine in Python, which serves where there is no compiler, passes what the compiled one passes.
    Stage(
        "python-engine",
        "the wire, conversations and kills once more with PENSTOCK_ENGINE=python",
        f"""
        env PENSTOCK_ENGINE=python {PYTEST} -m '{FAST}' {ON_THE_WIRE} {ASKED_ENGINE}
        env PENSTOCK_ENGINE=python {PYTEST} -m fuzz -k conversation tests/fuzz
        env PENSTOCK_ENGINE=python {PYTEST} -m crash -k 'loses_nothing and not counted' tests/crash/test_crash.py
        """,
        quiet_minutes=25,
        cores=1,
    ),
    Stage(
        "python-jms",
        "JORAM's conformance tests once more with PENSTOCK_ENGINE=python",
        f"env PENSTOCK_ENGINE=python {PYTEST} -s -m 'jms and not cluster' tests/jms_suite/test_joram.py",
        JAVA,
        quiet_minutes=20,
        cores=0.5,
        maven=True,
    ),
    Stage("demo", "hack/demo, as a new user runs it", "hack/demo", JAVA, quiet_minutes=20, cores=1),
)


def obstacle(stage: Stage) -> str:
    """Why this stage can't run on this machine, or an empty string."""
    missing = [program for program in stage.programs if shutil.which(program) is None]
    if missing:
        packages = [PACKAGES[program] for program in missing if program in PACKAGES]
        others = [TOO_OLD_IN_DEBIAN[program] for program in missing if program in TOO_OLD_IN_DEBIAN]
        cures = [f"Debian packages: {' '.join(packages)}"] if packages else []
        cures += [f"not as a Debian package: {'; '.join(others)}"] if others else []
        return "; ".join((f"not on this machine: {', '.join(missing)}", *cures))
    if (stage.cluster or stage.root) and os.geteuid() != 0:
        return "needs root, for network namespaces, containerd and buildah"
    return ""
