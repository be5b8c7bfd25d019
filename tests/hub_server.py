#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face hub for tests/test_pull.c, and a second server for the content of large files, as a hub has one.

Usage: tests/hub_server.py ROOT LOG    prints the two ports, and ends when its standard input is closed

A model ORG/FAULT has the files of the folder ROOT/whole, of ROOT/sharded if FAULT begins with "sharded"; FAULT says what
goes wrong. LOG gets a line for each request: server, method, path, first byte, authorization."""
import collections
import hashlib
import http.server
import json
import os
import sys
import threading
import time
import urllib.parse

ROOT, LOG = sys.argv[1:3]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
CHUNK = 1 << 14
counts = collections.Counter()  # requests that a fault has hit
lock = threading.Lock()


# What the index names.
SHARDS = {"sharded-up": ["../x.safetensors"], "sharded-absolute": ["/etc/passwd"], "sharded-number": [7], "sharded-nothing": [],
          "sharded-no-name": [""], "sharded-hidden": [".x"], "sharded-long": ["x" * 300], "sharded-line": ["a\nb"],
          "sharded-delete": ["a\x7f"], "sharded-backslash": ["a\\b"],
          "sharded-many": [f"model-{i}.safetensors" for i in range(12)]}


def content(fault, name):
    if fault == "sharded-many" and name.endswith(".safetensors"):
        return name.encode() * 1000
    with open(os.path.join(ROOT, "sharded" if fault.startswith("sharded") else "whole", name), "rb") as file:
        data = file.read()
    if name.endswith(".index.json") and fault in SHARDS:
        data = json.dumps({"weight_map": {str(i): shard for i, shard in enumerate(SHARDS[fault])}}).encode()
    return data


def files_of(fault):
    names = sorted(os.listdir(os.path.join(ROOT, "sharded" if fault.startswith("sharded") else "whole")))
    lacks = {"no-config": "config.json", "pickled": "model.safetensors"}.get(fault)
    return [name for name in names if name != lacks]


def is_large(name):
    return name.endswith((".safetensors", ".bin"))


def etag(fault, name):
    data = content(fault, name)
    if is_large(name):
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def first(fault, times=1):
    """Whether the fault has been hit fewer times than this."""
    with lock:
        counts[fault] += 1
        return counts[fault] <= times


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, headers=(), body=b"", length=None):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if length != "":
            self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def endless(self, status, piece, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        while True:  # until the client closes the connection
            self.wfile.write(piece)

    def note(self):
        start = self.headers.get("Range", "bytes=0-")[len("bytes="):-1]
        with lock, open(LOG, "a") as log:
            log.write(f"{self.server.kind} {self.command} {self.path} {start} {self.headers.get('Authorization')}\n")
        return int(start)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        start = self.note()
        parts = urllib.parse.urlsplit(self.path).path.split("/")
        try:
            if self.server.kind == "store":
                self.store(parts[1], parts[2], start)
            elif parts[1] == "api":
                self.listing(parts[4], urllib.parse.unquote(parts[6]))
            else:
                self.resolve(parts[2], parts[5], start)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def listing(self, fault, revision):
        statuses = {"unauthorized": (401, "RepoNotFound"), "gated": (403, "GatedRepo"), "missing": (404, "RepoNotFound"),
                    "teapot": (418, "")}
        if fault in statuses:
            status, code = statuses[fault]
            return self.answer(status, [("X-Error-Code", code), ("X-Error-Message", "as \x1b asked")])
        if revision == "nowhere":
            return self.answer(404, [("X-Error-Code", "RevisionNotFound")])
        if fault == "private" and self.headers.get("Authorization") != "Bearer secret":
            return self.answer(401, [("X-Error-Code", "RepoNotFound")])
        if fault == "limited" and first(fault):
            return self.answer(429, [("Retry-After", "1")])
        if fault == "limited-long":
            return self.answer(429, [("Retry-After", "100000")])
        if fault in ("answer-408", "answer-500", "answer-504") and first(fault):
            return self.answer(int(fault[-3:]))
        if fault == "down" or (fault == "busy" and first(fault, 2)):
            return self.answer(503)
        if fault == "endless-list":
            return self.endless(200, b" " * CHUNK)
        if fault == "endless-error":
            return self.endless(404, b" " * CHUNK, [("X-Error-Code", "RepoNotFound")])
        if fault == "endless-headers":
            self.send_response(200)
            self.flush_headers()
            while True:
                self.wfile.write(b"X: " + b"x" * 1000 + b"\r\n")
        if fault == "renamed":
            return self.answer(307, [("Location", "/api/models/org/private/revision/main")])
        if fault == "no-location":
            return self.answer(302)
        if fault == "loop":
            return self.answer(302, [("Location", self.path)])
        if fault == "local-file":
            return self.answer(302, [("Location", "file:///etc/passwd")])
        if fault == "cut-list" and first(fault):
            self.answer(200, body=b"{\"sha\": ", length=1000)
            self.close_connection = True
            return None
        broken = {"malformed": "{", "list": "[]", "no-commit": {"sha": "../../x"}, "number": {"sha": 1},
                  "no-name": {"sha": COMMIT, "siblings": [{}]}, "empty": ""}.get(fault)
        if broken is None:
            broken = {"sha": COMMIT, "siblings": [{"rfilename": name} for name in files_of(fault)]}
        body = broken if isinstance(broken, str) else json.dumps(broken)
        return self.answer(200, [("Content-Type", "application/json")], body.encode())

    def resolve(self, fault, name, start):
        data = content(fault, name)
        tag = etag(fault, name)
        size = len(data)
        common = [("X-Repo-Commit", COMMIT), ("Accept-Ranges", "bytes")]
        if fault == "renamed":
            return self.answer(307, [("Location", self.path.replace("renamed", "private"))])
        if fault == "gone" and name == "config.json":
            return self.answer(404, [("X-Error-Code", "EntryNotFound")])
        if fault == "gated-file":
            return self.answer(403, [("X-Error-Code", "\tGatedRepo")])
        if is_large(name):
            if fault == "linked-no-size":
                return self.answer(302, [("X-Linked-Etag", tag), ("Location", "http://127.0.0.1:1/")])
            where = "http://127.0.0.1:1/" if fault == "no-store" else f"http://127.0.0.1:{self.server.store_port}/{fault}/{name}?signature=1"
            return self.answer(302, common + [("X-Linked-Etag", f'"{tag}"'), ("X-Linked-Size", str(size)), ("Location", where)])
        if fault == "etag-path":
            tag = "x/../../../y"
        if fault == "etag-hidden":
            tag = ".x"
        if fault == "etag-other":
            tag = f"a-mirror-{name}"
        headers = common + ([] if fault == "no-etag" else [("ETag", f'W/"{tag}"' if name == "vocab.txt" else f'"{tag}"')])
        if fault == "odd-headers":
            headers = common + [("ETagged", "1"), ("ETag", "x"), ("ETag", ""), ("ETag", '"'), ("ETag", '"x'), ("ETag", tag), ("X-Linked-Size", ""),
                                ("X-Linked-Size", "many"), ("X-Linked-Size", "1" * 30), ("X-Linked-Size", "12 "),
                                ("X-Linked-Size", "12x"), ("Content-Range", "items 1-2/3"), ("Content-Range", ""),
                                ("X-Error-Message", "x" * 300)]
        if fault == "etag-long":
            headers = common + [("ETag", "x" * 200)]
        if fault == "bad-length":
            return self.answer(200, headers, length="many")
        if fault == "no-size":
            self.close_connection = True
            return self.answer(200, headers + [("Connection", "close")], length="")
        if fault == "hash-small" and name == "config.json" and self.command == "GET":
            data = data[:-1] + b"!"
        return self.send(fault, data, start, headers)

    def store(self, fault, name, start):
        data = content(fault, name)
        if fault in ("denied", "denied-why"):
            return self.answer(403, [("X-Error-Message", "because")] if fault == "denied-why" else [])
        if fault == "cut-unannounced" and first(fault):
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            return self.wfile.write(data[:1000])
        if fault == "hash" or (fault == "hash-once" and first(fault)):
            data = bytes(len(data))
        if fault == "short-length":
            return self.answer(200, body=data[:-10])
        if fault == "endless":
            return self.endless(200, data[:CHUNK])
        if fault == "stalls" and first(fault):
            self.answer(200, body=data[:len(data) // 2], length=len(data))
            time.sleep(10)
            self.close_connection = True
            return None
        if fault in ("cut", "cut-without-ranges", "sharded-cut") and first(fault, 3):
            part = data[start:start + (len(data) - start) // 2] if fault != "cut-without-ranges" else data[:len(data) // 2]
            return self.part(data, part, start if fault != "cut-without-ranges" else 0)
        if fault == "cut-always":
            return self.part(data, b"", start)
        if fault == "cut-without-ranges":
            return self.answer(200, body=data)
        if fault == "other-range" and start > 0:
            return self.answer(206, [("Content-Range", f"bytes 7-{len(data) - 1}/{len(data)}")], data[7:])
        if fault == "other-range":
            return self.part(data, data[:CHUNK], 0)
        return self.send(fault, data, start, [])

    def part(self, data, part, start):
        """Fewer bytes than announced."""
        headers = [("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")] if start else []
        self.answer(206 if start else 200, headers, part, len(data) - start)
        self.close_connection = True

    def send(self, fault, data, start, headers):
        if start:
            headers = headers + [("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")]
        self.send_response(206 if start else 200)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        for at in range(start, len(data) if self.command == "GET" else start, CHUNK):
            self.wfile.write(data[at:at + CHUNK])
            if "throttled" in fault:
                time.sleep(0.002)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        pass  # the client was killed


def main():
    servers = [Server(("127.0.0.1", 0), Handler) for _ in range(2)]
    servers[0].kind, servers[1].kind = "hub", "store"
    servers[0].store_port = servers[1].server_address[1]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(*(server.server_address[1] for server in servers), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
