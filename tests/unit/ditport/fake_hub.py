"""A Hugging Face hub of one process: just the answers that huggingface_hub asks for."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """Repositories by id: files by name. Tests change these between requests."""

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    revisions: dict[str, str] = field(default_factory=lambda: {"main": COMMIT, COMMIT: COMMIT})
    break_after: int | None = None  # bytes of a file after which the connection is cut
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    endpoint: str = ""

    def add_folder(self, name: str, folder: Path) -> None:
        """Publish a folder."""
        self.repositories[name] = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    def paths(self, method: str) -> list[str]:
        """The paths that were asked with a method."""
        return [path for asked, path, _ in self.requests if asked == method]


class Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        self.hub.requests.append((self.command, path, dict(self.headers)))
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", path):
            self.model_info(found[1], found[2] or "main")
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)/?", path):
            self.tree(found[1], found[2])
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self.file(found[1], found[2], found[3], body=body)
        else:
            self.send(404, {"error": f"no such page: {path}"})

    def send(self, status: int, data: object, **headers: str) -> None:
        content = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def allowed(self, name: str, revision: str, *, files: bool) -> bool:
        if name not in self.hub.repositories:
            self.send(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            return False
        if revision not in self.hub.revisions:
            self.send(404, {"error": "Revision not found"}, X_Error_Code="RevisionNotFound")
            return False
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if files and name in self.hub.gated and token not in self.hub.tokens:
            status = 403 if token else 401
            self.send(status, {"error": "gated"}, X_Error_Code="GatedRepo")
            return False
        return True

    def model_info(self, name: str, revision: str) -> None:
        if not self.allowed(name, revision, files=False):
            return
        files = self.hub.repositories[name]
        siblings = [{"rfilename": file, "size": len(files[file])} for file in files]
        commit = self.hub.revisions[revision]
        self.send(200, {"id": name, "modelId": name, "sha": commit, "siblings": siblings})

    def tree(self, name: str, revision: str) -> None:
        if not self.allowed(name, revision, files=False):
            return
        files = self.hub.repositories[name]
        rows = [
            {"type": "file", "path": file, "size": len(files[file]), "oid": etag(files[file])}
            for file in files
        ]
        self.send(200, rows)

    def file(self, name: str, revision: str, file: str, *, body: bool) -> None:
        if not self.allowed(name, revision, files=True):
            return
        content = self.hub.repositories[name].get(file)
        if content is None:
            self.send(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
            return
        start = 0
        if found := re.match(r"bytes=(\d+)-", self.headers.get("Range", "")):
            start = int(found[1])
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{etag(content)}"')
        self.send_header("X-Repo-Commit", self.hub.revisions[revision])
        self.end_headers()
        if not body:
            return
        limit = self.hub.break_after
        if limit is not None and len(content) - start > limit:
            self.wfile.write(content[start : start + limit])
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
            return
        self.wfile.write(content[start:])


def etag(content: bytes) -> str:
    """What the hub would call a file's content."""
    return hashlib.sha1(content).hexdigest()


@contextmanager
def running(hub: FakeHub) -> Iterator[FakeHub]:
    """Serve on a free port."""
    handler = type("BoundHandler", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # cut connections
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
