"""Servers of objects on this machine: moto and azurite keep the conditions of writes, rclone and s3rver ignore them.

`make test-bucket` installs them into a folder and names it in $HOLDFAST_BUCKET_SERVERS.
"""

from __future__ import annotations

import base64
import email.utils
import hmac
import os
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, S3Store

FOLDER: Final = os.environ.get("HOLDFAST_BUCKET_SERVERS", "")
HONEST: Final = ("moto", "azurite")
LIARS: Final = ("rclone", "s3rver")
_ACCOUNT: Final = "devstoreaccount1"
_SECRET: Final = base64.b64encode(b"a key for a server on this machine").decode()
_NO_RETRY: Final[Any] = {"max_retries": 0, "retry_timeout": timedelta(seconds=20)}


class Server:
    """A server that runs. `port` may be that of a proxy in front of it."""

    def __init__(self, kind: str, port: int) -> None:
        self.kind = kind
        self.port = port

    def client(self, prefix: str, port: int | None = None, bucket: str = "bucket") -> Any:
        """A store of obstore for a prefix."""
        address = f"http://127.0.0.1:{port or self.port}"
        if self.kind == "azurite":
            return AzureStore(
                bucket,
                prefix=prefix,
                account_name=_ACCOUNT,
                account_key=_SECRET,
                endpoint=f"{address}/{_ACCOUNT}",
                client_options={"allow_http": True, "timeout": timedelta(seconds=10)},
                retry_config=_NO_RETRY,
            )
        return S3Store(
            bucket,
            prefix=prefix,
            endpoint=address,
            region="us-east-1",
            access_key_id="S3RVER",
            secret_access_key="S3RVER",  # noqa: S106
            client_options={"allow_http": True, "timeout": timedelta(seconds=10)},
            retry_config=_NO_RETRY,
        )

    def url(self, prefix: str, port: int | None = None) -> str:
        """A URL for `holdfast.open`, which needs the variables of `environment`."""
        address = f"http://127.0.0.1:{port or self.port}"
        if self.kind == "azurite":
            return f"az://bucket/{prefix}?endpoint={address}/{_ACCOUNT}"
        return f"s3://bucket/{prefix}?endpoint={address}&region=us-east-1"

    def environment(self) -> dict[str, str]:
        if self.kind == "azurite":
            return {"AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": _SECRET}
        return {"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER"}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(kind: str, folder: Path) -> Generator[Server]:
    """A server with an empty bucket, for a block."""
    port = free_port()
    data = folder / "data"
    (data / "bucket").mkdir(parents=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            _command(kind, port, data), stdout=log, stderr=log, cwd=folder, env={**os.environ, **_environment()}
        )
    try:
        server = Server(kind, port)
        _wait(server, process, folder / "log")
        yield server
    finally:
        process.kill()  # azurite would wait for its connections
        process.wait(timeout=30)


def _command(kind: str, port: int, data: Path) -> list[str]:
    root = Path(FOLDER).resolve()
    scripts = root / "node_modules" / ".bin"
    match kind:
        case "moto":
            return [str(root / "bin" / "moto_server"), "-H", "127.0.0.1", "-p", f"{port}"]
        case "azurite":
            blobs = ["--blobHost", "127.0.0.1", "--blobPort", f"{port}"]
            return [str(scripts / "azurite-blob"), *blobs, "--location", str(data), "--silent", "--skipApiVersionCheck"]
        case "rclone":
            serve = ["serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", "S3RVER,S3RVER"]
            return [str(root / "bin" / "rclone"), *serve, str(data)]
        case _:
            return [str(scripts / "s3rver"), "-d", str(data), "-a", "127.0.0.1", "-p", f"{port}"]


def _environment() -> dict[str, str]:
    return {"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_SECRET}"}


def _wait(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers, and create its bucket."""
    deadline = time.monotonic() + 60
    while True:
        try:
            if server.kind == "moto":
                _make_bucket(server.port)
            if server.kind == "azurite":
                _make_container(server.port)
            obstore.put(server.client("check"), "it", b"answers")
            return
        except (BaseError, OSError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(log.read_text("utf-8")) from error
            time.sleep(0.2)


def _make_bucket(port: int) -> None:
    _put(port, "/bucket", {})


def _make_container(port: int) -> None:
    """Create a container with a signed request, which obstore has no function for."""
    path = f"/{_ACCOUNT}/bucket"
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in sorted(headers.items()))]
    text = "\n".join([*lines, f"/{_ACCOUNT}{path}", "restype:container"])
    signed = base64.b64encode(hmac.digest(base64.b64decode(_SECRET), text.encode(), "sha256")).decode()
    _put(port, f"{path}?restype=container", {**headers, "Authorization": f"SharedKey {_ACCOUNT}:{signed}"})


def _put(port: int, path: str, headers: dict[str, str]) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("PUT", path, headers={**headers, "Content-Length": "0"})
    if connection.getresponse().status not in (200, 201, 409):  # 409: it exists
        raise OSError(f"the server did not create {path}")
    connection.close()
