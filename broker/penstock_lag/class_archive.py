"""An archive of Spark's classes for Java, which then starts with them loaded, checked and linked.

    python class_archive.py FOLDER

makes the archive, with the Java and the Spark that are used here, and fails if Java does not accept it. Java takes
classes from an archive only if they come from the same files, in the same order, as when it was made. So `spark.jar`,
which names the files of Spark in a fixed order, must come first in the class path; what follows does not matter:
`jars/*` is in the order of the file system, which is another one on each machine, and Spark on Kubernetes puts a folder
of settings before it. If the archive does not fit, Java loads every class by itself, as without it.

This file imports nothing else of the package: the image makes the archive before it has the package, so that a change
of the package is no change of the archive. Source: docs/reference/lag-job.md, "The archive of Java's classes".
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false, reportAttributeAccessIssue=false
# Reason: pyarrow ships no type information, and Spark does not tell otherwise which process is its own.

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.core.context import SparkContext
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

__all__ = ["ARCHIVE", "CLASS_PATH", "class_path_jar", "make", "unsigned"]

CLASS_PATH: Final = "spark.jar"
"""First in the class path of a Java that is to use the archive. It has no classes, only the names of Spark's files."""
ARCHIVE: Final = "spark.jsa"
"""For Java's option `-XX:SharedArchiveFile`."""

_SIGNATURES: Final = (".SF", ".RSA", ".DSA", ".EC")
_LINE: Final = 72
"""The most bytes that a line of a manifest may have, its end not counted. Source: JAR File Specification."""
_ROWS: Final = 6_000
_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"


def class_path_jar(target: Path, jars: Iterable[Path]) -> None:
    """Write a jar whose manifest names these jars, relative to its folder, in order of their names."""
    names = [os.path.relpath(jar, target.parent) for jar in sorted(jars, key=lambda jar: jar.name)]
    text = f"Class-Path: {' '.join(names)}"
    lines = [text[:_LINE], *(f" {text[at : at + _LINE - 1]}" for at in range(_LINE, len(text), _LINE - 1))]
    with zipfile.ZipFile(target, "w") as jar:
        jar.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF"), "\r\n".join(["Manifest-Version: 1.0", *lines, "", ""]))


def unsigned(jars: Iterable[Path], folder: Path) -> list[Path]:
    """The jars, but copies in the folder of those that are signed, without the signatures: Java archives no class of a
    signed jar. In Spark that is its compiler (janino), signed with the name DUMMY.
    """
    found: list[Path] = []
    for jar in jars:
        with zipfile.ZipFile(jar) as content:
            entries = [entry for entry in content.infolist() if not _is_signature(entry.filename)]
            if len(entries) == len(content.infolist()):
                found.append(jar)
                continue
            with zipfile.ZipFile(folder / jar.name, "w", zipfile.ZIP_DEFLATED) as copy:
                for entry in entries:
                    copy.writestr(entry, content.read(entry))
        found.append(folder / jar.name)
    return found


def _is_signature(name: str) -> bool:
    return name.upper().startswith("META-INF/") and name.upper().endswith(_SIGNATURES)


def make(folder: Path) -> None:
    """Write the archive and the jar for it. Raises CalledProcessError if Java does not accept them."""
    folder.mkdir(parents=True, exist_ok=True)
    jars = unsigned((Path(pyspark.__file__).parent / "jars").glob("*.jar"), folder)
    class_path_jar(folder / CLASS_PATH, jars)
    unfinished = folder / f"{ARCHIVE}.part"
    unfinished.unlink(missing_ok=True)
    _use_spark(folder / CLASS_PATH, f"{_JAVA} -XX:ArchiveClassesAtExit={unfinished}")
    unfinished.chmod(0o644)
    unfinished.rename(folder / ARCHIVE)
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java"
    refusing = ["-Xshare:on", f"-XX:SharedArchiveFile={folder / ARCHIVE}"]
    subprocess.run([java, *refusing, "-cp", folder / CLASS_PATH, "-version"], check=True)


def _use_spark(class_path: Path, java_options: str) -> None:
    """Start Spark, do what a run of the lag job does, and wait until its Java has ended."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # nobody knows the name of the machine that builds an image
    os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
    with tempfile.TemporaryDirectory(prefix="penstock-classes-") as scratch:
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.extraClassPath", str(class_path))
            .config("spark.driver.extraJavaOptions", java_options)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.sql.adaptive.enabled", "false")
            .config("spark.sql.autoBroadcastJoinThreshold", "-1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", scratch)
            .config("spark.local.dir", scratch)
            .getOrCreate()
        )
        _write(Path(scratch) / "ordinal=0" / "rows.parquet")
        for mode in ("NO_CODEGEN", "FALLBACK"):
            spark.conf.set("spark.sql.codegen.factoryMode", mode)
            _ask(spark, scratch)
        gateway = SparkContext._gateway
        assert gateway is not None
        java = gateway.proc
        assert java is not None
        assert java.stdin is not None
        spark.stop()
        gateway.shutdown()
        java.stdin.close()  # this ends it
        java.wait()


def _write(path: Path) -> None:
    """Rows as in a ledger: of two kinds, with texts, numbers, flags, lists, and values that are missing."""
    numbers = range(_ROWS)
    some = [each if each % 3 else None for each in numbers]
    columns = {
        "kind": ["broker" if each % 100 == 0 else "subscription" for each in numbers],
        "queue": [f"q-{each % 40}" for each in numbers],
        "text": [None if each is None else str(each) for each in some],
        "seq": list(numbers),
        "poll": [each // 100 for each in numbers],
        "some": some,
        "flag": [each % 2 == 0 for each in numbers],
        "list": [None if each is None else [each, 1] for each in some],
    }
    path.parent.mkdir()
    pq.write_table(pa.table(columns), path, compression="zstd")


def _ask(spark: SparkSession, folder: str) -> None:
    """Questions like those of penstock_lag.figures and penstock_lag.rollups."""
    from pyspark.sql.types import ArrayType, BooleanType, LongType, StringType, StructType

    schema = StructType()
    for name in ("kind", "queue", "text"):
        schema = schema.add(name, StringType())
    for name in ("seq", "poll", "some", "ordinal"):
        schema = schema.add(name, LongType())
    schema = schema.add("flag", BooleanType()).add("list", ArrayType(LongType())).add("absent", LongType())
    reader = spark.read.option("basePath", folder).schema(schema)
    rows = reader.parquet(f"{folder}/ordinal=0/rows.parquet")
    of_kind = rows.where(F.col("kind") == "subscription").where(F.col("seq").between(0, _ROWS))
    rows.where(F.col("kind") == "broker").select("seq", "poll", "flag", "ordinal").toArrow()
    polls = spark.createDataFrame(pa.table({"ordinal": [0] * 60, "poll": range(60), "shows": [True, False] * 30}))
    placed = of_kind.join(F.broadcast(polls), ["ordinal", "poll"], how="inner")
    _sorted(placed).toArrow()
    _added(placed).toArrow()
    places = spark.createDataFrame(pa.table({"ordinal": [0, 0], "seq": [4, 8]}))
    of_kind.join(F.broadcast(places), ["ordinal", "seq"], how="inner").toArrow()


def _sorted(placed: DataFrame) -> DataFrame:
    by_seq = Window.partitionBy("hash", "ordinal", "queue").orderBy("seq")
    whole = by_seq.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    before = by_seq.rowsBetween(Window.unboundedPreceding, -1)
    some = F.coalesce("some", "absent", F.lit(0))
    narrow = placed.select(
        F.xxhash64("ordinal", "queue").alias("hash"),
        *("ordinal", "queue", "seq", "flag", "some"),
        ((some <= 100) | F.coalesce(F.col("some") - F.col("poll") <= 3, F.lit(False))).alias("is_low"),
    )
    compared = narrow.select(
        *("hash", "ordinal", "queue", "seq", "is_low"),
        (F.col("some") < F.lag("some").over(by_seq)).alias("fell"),
        F.when(F.lag("flag").over(by_seq).eqNullSafe(F.col("flag")), F.col("some")).otherwise(1).alias("same"),
        F.lead("seq", 2).over(by_seq).isNull().alias("is_late"),
        F.last("seq").over(whole).alias("last_seq"),
        F.max("seq").over(before).alias("latest_before"),
        F.max(F.when(F.col("is_low"), F.col("seq"))).over(whole).alias("low_seq"),
    )
    return compared.groupBy("hash", "ordinal", "queue").agg(
        F.min("seq").alias("first"),
        F.max_by("seq", F.when(F.col("is_low"), F.col("seq"))).alias("low"),
        F.count_if(F.col("fell") & ~F.col("is_late")).alias("falls"),
        F.count("same").alias("same"),
        F.sum(F.expr("same * seq div 2")).alias("sum"),
        F.max(F.greatest("latest_before", "low_seq", "last_seq")).alias("latest"),
    )


def _added(placed: DataFrame) -> DataFrame:
    queues = placed.groupBy("ordinal", "queue").agg(F.max("seq").alias("start"))
    told = placed.join(F.broadcast(queues), ["ordinal", "queue"], how="inner").withColumn(
        "listed", F.when(F.col("list").isNotNull(), F.col("seq"))
    )
    return told.groupBy("ordinal", "queue", (F.col("seq") >= F.col("start")).alias("is_inside")).agg(
        F.count(F.lit(1)).alias("rows"),
        F.min_by("some", "seq").alias("first_some"),
        F.max("text").alias("text"),
        F.min("listed").alias("first_listed"),
        F.count_distinct("poll").alias("polls"),
        F.sum("some").alias("sum"),
        *[F.max(F.col("some") + each).alias(f"max_{each}") for each in range(20)],
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python class_archive.py FOLDER")
    make(Path(sys.argv[1]).absolute())
