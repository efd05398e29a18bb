"""hack/images push against a small registry: what arrives under the printed name is whole, byte for byte.

The registry speaks just the part of the OCI distribution protocol that a push uses.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.built  # the image of the operator

REPOSITORY = Path(__file__).resolve().parents[2]


class Registry(ThreadingHTTPServer):
    """Keeps blobs by digest, as a file each, and manifests by path."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.folder = folder
        self.manifests: dict[str, bytes] = {}

    def blob(self, digest: str) -> Path:
        return self.folder / digest.replace(":", "-")


class Answer(BaseHTTPRequestHandler):
    """Each upload is one request whose body is the blob; the PUT behind it names the digest."""

    protocol_version = "HTTP/1.1"
    uploads = 0
    lock = threading.Lock()

    def log_message(self, format: str, *args: Any) -> None:
        """Not into the test's output."""

    @property
    def _registry(self) -> Registry:
        assert isinstance(self.server, Registry)
        return self.server

    def _say(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def _pieces(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding") != "chunked":
            yield self.rfile.read(int(self.headers.get("Content-Length", "0")))
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def do_GET(self) -> None:
        self._say(200 if self.path == "/v2/" else 404)

    def do_HEAD(self) -> None:
        blob = self._registry.blob(self.path.rpartition("/")[2])
        if "/blobs/" in self.path and blob.exists():
            self._say(200, Content_Length=str(blob.stat().st_size))
        else:
            self._say(404)

    def do_POST(self) -> None:
        with Answer.lock:
            Answer.uploads += 1
            number = Answer.uploads
        self._say(202, Location=f"{self.path.rstrip('/')}/{number}")

    def do_PATCH(self) -> None:
        with (self._registry.folder / f"upload{self.path.rpartition('/')[2]}").open("ab") as file:
            for piece in self._pieces():
                file.write(piece)
        self._say(202, Location=self.path)

    def do_PUT(self) -> None:
        body = b"".join(self._pieces())
        if "/manifests/" in self.path:
            self._registry.manifests[self.path] = body
        else:
            path, _, query = self.path.partition("?")
            digest = query.removeprefix("digest=").replace("%3A", ":")
            (self._registry.folder / f"upload{path.rpartition('/')[2]}").rename(self._registry.blob(digest))
        self._say(201, Location=self.path)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    server = Registry(tmp_path)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_pushed_image_arrives_whole_under_the_printed_name(registry: Registry) -> None:
    address = f"127.0.0.1:{registry.server_port}"
    command = ["hack/images", "push", "--tls-verify=false", f"{address}/team", "operator"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    name = re.fullmatch(rf"{address}/team/penstock-operator:([0-9a-f]{{12}})\n", done.stdout)
    assert name is not None, done.stdout

    ((path, manifest),) = registry.manifests.items()
    assert path == f"/v2/team/penstock-operator/manifests/{name[1]}"
    content = json.loads(manifest)
    for part in (content["config"], *content["layers"]):
        blob = registry.blob(part["digest"]).read_bytes()
        assert len(blob) == part["size"]
        assert f"sha256:{hashlib.sha256(blob).hexdigest()}" == part["digest"]
    config = json.loads(registry.blob(content["config"]["digest"]).read_bytes())["config"]
    assert (config["User"], config["Entrypoint"]) == ("10001:10001", ["penstock"])
