"""The jar that gives Java Spark's files in a fixed order, and what is done with signed ones."""

from __future__ import annotations

import zipfile
from pathlib import Path

from penstock_lag.class_archive import class_path_jar, unsigned

CLASS = b"\xca\xfe\xba\xbe"


def test_the_manifest_names_the_jars_in_order_of_their_names(tmp_path: Path) -> None:
    """Also if the folder gives them in another one, and relative to the jar, as Java asks for."""
    (tmp_path / "made").mkdir()
    target = tmp_path / "made" / "spark.jar"
    class_path_jar(target, [tmp_path / "jars" / "b.jar", tmp_path / "made" / "c.jar", tmp_path / "jars" / "a.jar"])
    with zipfile.ZipFile(target) as jar:
        assert jar.read("META-INF/MANIFEST.MF") == (
            b"Manifest-Version: 1.0\r\nClass-Path: ../jars/a.jar ../jars/b.jar c.jar\r\n\r\n"
        )


def test_no_line_of_the_manifest_is_too_long(tmp_path: Path) -> None:
    """Java refuses more than 72 bytes; a line that begins with a space goes on with the one before."""
    names = [f"some-library-of-spark-with-a-long-name-{number:03}.jar" for number in range(300)]
    class_path_jar(tmp_path / "spark.jar", [tmp_path / name for name in names])
    with zipfile.ZipFile(tmp_path / "spark.jar") as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode()
    assert max(len(line) for line in manifest.split("\r\n")) == 72
    assert manifest.replace("\r\n ", "").split("\r\n")[1] == "Class-Path: " + " ".join(names)


def test_a_signed_jar_is_copied_without_its_signature(tmp_path: Path) -> None:
    """Java archives no class of a signed jar. Others are taken as they are."""
    jars, made = tmp_path / "jars", tmp_path / "made"
    jars.mkdir()
    made.mkdir()
    signed = {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\n\r\n", "META-INF/DUMMY.SF": b"x"}
    signed |= {"META-INF/DUMMY.DSA": b"y", "org/A.class": CLASS}
    for name, content in (("plain.jar", {"org/B.class": CLASS}), ("signed.jar", signed)):
        with zipfile.ZipFile(jars / name, "w") as jar:
            for entry, data in content.items():
                jar.writestr(entry, data)
    assert unsigned([jars / "plain.jar", jars / "signed.jar"], made) == [jars / "plain.jar", made / "signed.jar"]
    with zipfile.ZipFile(made / "signed.jar") as copy:
        assert copy.namelist() == ["META-INF/MANIFEST.MF", "org/A.class"]
        assert copy.read("org/A.class") == CLASS
