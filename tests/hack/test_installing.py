"""While packages are installed it is said what happens, and when that fails, why and what to do.

What pip prints was taken from pip 24, and is typed in again here.
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from stages.installing import FAILED, LACKING, Display, doing, install, trouble

BEGUN = "Looking in links: /wheels\nCollecting cffi==2.1.1 (from -r requirements/demo.lock (line 195))\n"
SPARK = f"""{BEGUN}  Downloading cffi-2.1.1-cp311-cp311-manylinux2014_x86_64.whl (216 kB)
     ━━━━━━━━━━━━━━━━━━━━━━ 216.2/216.2 kB 9.9 MB/s eta 0:00:00
Collecting pyspark==4.3.0 (from -r requirements/demo.lock (line 1236))
  Downloading pyspark-4.3.0.tar.gz (455.9 MB)
"""
NO_NETWORK = """\
WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken by \
'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f57>: Failed to establish a new \
connection: [Errno -2] Name or service not known')': /simple/cffi/
ERROR: Could not find a version that satisfies the requirement cffi==2.1.1 (from versions: none)
ERROR: No matching distribution found for cffi==2.1.1
"""


@pytest.mark.parametrize(
    ("said", "does"),
    [
        ("", ""),
        ("Looking in links: /wheels\n", ""),
        (BEGUN, "package 1 of 39: cffi 2.1.1"),
        (SPARK, "package 2 of 39: pyspark-4.3.0.tar.gz (455.9 MB)"),
        (f"{SPARK}  Installing build dependencies: started\n",
         "package 2 of 39: pyspark 4.3.0, installing build dependencies"),
        (f"{SPARK}  Building wheel for pyspark (pyproject.toml): started\n", "building pyspark"),
        (f"{SPARK}Installing collected packages: cffi, pyspark\n", "copying 2 packages into .venv"),
        ("Installing collected packages: penstock\n", "copying 1 package into .venv"),
        (BEGUN + NO_NETWORK.splitlines(keepends=True)[0], "the package index does not answer; pip tries again"),
    ],
)  # fmt: skip
def test_what_pip_does_is_said(said: str, does: str) -> None:
    assert doing(said, 39) == does


@pytest.mark.parametrize(
    ("said", "cause", "code"),
    [
        (NO_NETWORK, "the package index cannot be reached", LACKING),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
         "the disk is full", LACKING),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed')\n",
         "the certificate of the package index is not trusted", LACKING),
        ("E: Failed to fetch http://deb.debian.org/debian/pool/main/m/maven.deb  Temporary failure resolving\n",
         "Debian's packages cannot be reached", LACKING),
        ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (apt-get)\n",
         "another program installs Debian packages", FAILED),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n",
         "a package is not the one that the lock file names", FAILED),
        ("ERROR: Could not find a version that satisfies the requirement cffi==2.1.1 (from versions: 1.17.1)\n",
         "the package index does not have a locked version, or not for this Python and processor", FAILED),
        ("error: command '/usr/bin/gcc' failed with exit code 1\n", "the C compiler refused a source file", FAILED),
        ("PermissionError: [Errno 13] Permission denied: '/srv/penstock/.venv/lib'\n",
         "this user may not write a file", FAILED),
        ("/srv/penstock/.venv/bin/python: No module named pip\n", ".venv was not made to its end", FAILED),
    ],
)  # fmt: skip
def test_a_known_trouble_has_a_cause_and_a_cure(said: str, cause: str, code: int) -> None:
    known = trouble(said)
    assert known is not None
    assert (known.cause, known.code, bool(known.cure)) == (cause, code, True)


def test_other_troubles_are_not_guessed() -> None:
    assert trouble("Segmentation fault\n") is None


class Shown:
    """What a display writes while the time passes."""

    def __init__(self, width: int | None) -> None:
        self.seconds = 0.0
        self.out = io.StringIO()
        self.display = Display("hack/env", self.out, width, lambda: self.seconds)

    def at(self, seconds: float) -> Display:
        self.seconds = seconds
        return self.display


def test_a_file_gets_a_line_every_ten_seconds() -> None:
    shown = Shown(None)
    shown.at(2).begins("installing 2 packages", "some minutes")
    shown.at(11.9).goes_on("package 1 of 2: cffi 2.1.1")
    shown.at(12).goes_on("package 2 of 2: pyspark 4.3.0")
    shown.at(22).goes_on("package 2 of 2: pyspark 4.3.0")
    shown.at(61).goes_on("")
    shown.at(62).ends()
    assert shown.out.getvalue().splitlines() == [
        "hack/env: [0:02] installing 2 packages (some minutes)",
        "hack/env: [0:12]   package 2 of 2: pyspark 4.3.0",
        "hack/env: [0:22]   still package 2 of 2: pyspark 4.3.0",
        "hack/env: [1:01]   installing 2 packages",
    ]


def test_a_terminal_has_one_line_that_changes_and_is_not_too_long() -> None:
    shown = Shown(40)
    shown.at(2).begins("making .venv")
    shown.at(63).goes_on("package 2 of 39: pyspark-4.3.0.tar.gz")
    shown.at(63).ends()
    assert shown.out.getvalue() == (
        "hack/env: [0:02] making .venv\n"
        "\r\x1b[Khack/env: [1:03] making .venv: package \r\x1b[K"
    )  # fmt: skip


def run(tmp_path: Path, script: str) -> tuple[int, str]:
    shown = Shown(None)
    code = install("installing 2 packages", ["sh", "-c", script], tmp_path / "env.log", shown.display)
    return code, shown.out.getvalue()


def test_a_step_that_succeeds_says_only_that_it_began(tmp_path: Path) -> None:
    assert run(tmp_path, "echo done") == (0, "hack/env: [0:00] installing 2 packages\n")
    assert (tmp_path / "env.log").read_text() == "done\n"


def test_a_step_that_fails_names_cause_cure_and_log(tmp_path: Path) -> None:
    (tmp_path / "env.log").write_text("No space left on device, in a step before\n")
    code, said = run(tmp_path, f'echo "{NO_NETWORK}"; exit 1')
    assert code == LACKING
    assert "failed: installing 2 packages: the package index cannot be reached.\n" in said
    assert "what to do: look at the connection" in said
    assert said.endswith(f"All output is in {tmp_path / 'env.log'}\n")


def test_a_step_that_fails_otherwise_shows_the_end_of_its_output(tmp_path: Path) -> None:
    code, said = run(tmp_path, "seq 100; exit 7")
    assert code == FAILED
    assert said.splitlines()[1:-1] == [
        *(f"    {number}" for number in range(86, 101)),
        "hack/env: failed: installing 2 packages: sh ended with exit code 7.",
    ]


def test_it_needs_nothing_but_python(tmp_path: Path) -> None:
    module = sys.modules["stages.installing"].__file__
    assert module
    done = subprocess.run(
        [sys.executable, "-I", "-S", module, "--log", tmp_path / "log", "--since", "0", "making .venv", "true"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, "making .venv" in done.stderr) == (0, True)
