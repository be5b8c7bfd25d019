#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face hub for tests/hub/test_pull.c, and a second server for the content of large files, as a hub has one.

Usage: tests/hub/hub_server.py ROOT LOG    prints three ports: of the hub, of the content's server, and of the hub with TLS
(its certificate is tests/hub/hub.pem), and ends when its standard input is closed

A model ORG/FAULT has the files of the folder ROOT/whole, or of ROOT/sharded, embedding or adapter if FAULT begins so; FAULT
says what goes wrong. LOG gets a line for each request: server, method, path, first byte, authorization."""
import collections
import hashlib
import http.server
import json
import os
import ssl
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
SHARDS = {"sharded-up": ["../x.safetensors"], "sharded-absolute": ["/etc/x.safetensors"], "sharded-number": [7], "sharded-nothing": [],
          "sharded-no-name": [""], "sharded-hidden": [".x.safetensors"], "sharded-long": ["x" * 300 + ".safetensors"],
          "sharded-line": ["a\nb.safetensors"], "sharded-delete": ["a\x7f.safetensors"], "sharded-backslash": ["a\\b.safetensors"],
          "sharded-program": ["modeling.py"], "sharded-config": ["config.json"], "sharded-pickle": ["model-1.bin"],
          "sharded-program-in-folder": ["x/model.safetensors"], "sharded-end": [".safetensors"], "sharded-option": ["-x.safetensors"],
          "sharded-double": ["x.safetensors.py"], "sharded-other-letters": ["m\u043edel.safetensors"],
          "sharded-trailing": ["model-1.safetensors "], "sharded-unlisted": ["model-9.safetensors"],
          "sharded-case": ["model-1.safetensors", "Model-1.safetensors"],
          "sharded-endless": [f"{i}.safetensors" for i in range(1025)],
          "sharded-many": [f"model-{i}.safetensors" for i in range(12)]}

# ETags of vocab.txt that are not its hash. %s: the hash of config.json, another file of the same model.
ETAGS = {"etag-part": "%s.incomplete", "etag-part-of-hub": "%s.0123abcd.incomplete", "etag-lock": "%s.lock", "etag-dot": "%s.",
         "etag-path": "x/../../../y", "etag-hidden": ".x", "etag-parent": "..", "etag-refs": "refs", "etag-blank": "a b",
         "etag-long": "x" * 250, "etag-letters": "\xe4\xf6", "etag-odd": "%%s*?[]"}

# Names in the list of files that no model folder holds, beside the others.
ODD_NAMES = ["modeling.py", ".gitattributes", ".x.json", "x.json\n", "a\x1b.txt", "CONFIG.JSON", "x" * 300 + ".json",
             "onnx/config.json", "../config.json", "pytorch_model.bin", "-x.txt", "1_Pooling/../config.json", "1_Pooling/x.json",
             "1_/config.py", "_Pooling/config.json", "1Pooling/config.json", "1_a/b/config.json", "1_" + "x" * 300 + "/config.json",
             "additional_chat_templates/rag.jinja", "1_../config.json"]


def folder_of(fault):
    kind = fault.split("-")[0]
    return os.path.join(ROOT, kind if kind in ("sharded", "embedding", "adapter") else "whole")


def content(fault, name):
    if fault in ("sharded-many", "sharded-case") and name.endswith(".safetensors"):
        return name.encode() * 1000
    with open(os.path.join(folder_of(fault), name), "rb") as file:
        data = file.read()
    if name.endswith(".index.json") and fault in SHARDS:
        data = json.dumps({"weight_map": {str(i): shard for i, shard in enumerate(SHARDS[fault])}}).encode()
    return data


def files_of(fault):
    names = sorted(os.path.relpath(os.path.join(folder, file), folder_of(fault))
                   for folder, _, files in os.walk(folder_of(fault)) for file in files)
    lacks = {"no-config": "config.json", "pickled": "model.safetensors", "odd-config": "config.json",
             "adapter-bare": "adapter_model.safetensors"}.get(fault)
    more = {"odd-names": ODD_NAMES, "odd-config": ["config.json\n", "config.json ", "Config.json", "./config.json", "config.json.py"],
            "sharded-many": SHARDS["sharded-many"], "sharded-case": ["Model-1.safetensors"],
            "sharded-trailing": SHARDS["sharded-trailing"],
            "embedding-many": [f"{i}_Dense/config.json" for i in range(3, 40)]}.get(fault, [])
    return [name for name in names if name != lacks] + more


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
                self.store(parts[1], "/".join(parts[2:]), start)
            elif parts[1] == "api":
                self.listing(parts[4], urllib.parse.unquote(parts[6]))
            elif parts[1] == "cache":
                self.cached(parts[2], parts[3], parts[4], start)
            else:
                self.resolve(parts[2], "/".join(parts[5:]), start)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def elsewhere(self, fault, status, path, headers=()):
        """A redirect to the hub without TLS, its scheme in the case that the fault says."""
        scheme = "HTTP" if fault.endswith("-upper") else "http"
        return self.answer(status, [*headers, ("Location", f"{scheme}://127.0.0.1:{self.server.hub_port}{path}")])

    def drip(self, data):
        for byte in data:
            self.wfile.write(bytes([byte]))
            time.sleep(0.2)

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
        if fault.startswith("down-list"):
            return self.elsewhere(fault, 302, self.path)
        if fault == "up":
            return self.answer(302, [("Location", f"HTTPS://127.0.0.1:{self.server.server_address[1]}/api/models/org/inline/revision/main")])
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
                  "no-name": {"sha": COMMIT, "siblings": [{}]}, "empty": "",
                  "long-list": {"sha": COMMIT, "siblings": [{"rfilename": str(i)} for i in range(100001)] if fault == "long-list" else []}
                  }.get(fault)
        if broken is None:
            broken = {"sha": COMMIT, "siblings": [{"rfilename": name} for name in files_of(fault)]}
        body = broken if isinstance(broken, str) else json.dumps(broken)
        return self.answer(200, [("Content-Type", "application/json")], body.encode())

    def cached(self, fault, steps, name, start):
        """Where a hub redirects the request for a file to, on itself; this answer may say nothing of the file."""
        data = content(fault, name)
        if steps != "0":
            return self.answer(307, [("Location", f"/cache/{fault}/{int(steps) - 1}/{name}"), ("ETag", '"of-a-redirect"')])
        headers = {"self-none": [], "self-weak": [("ETag", 'W/"xyz"')], "self-steps": [("ETag", "x")],
                   "self-later": [("X-Linked-Etag", f'"{etag(fault, name)}"'), ("X-Linked-Size", str(len(data)))]}[fault]
        return self.send(fault, data, start, headers)

    def resolve_to_self(self, fault, name, tag, size):
        linked = [("X-Linked-Etag", f'"{tag}"'), ("X-Linked-Size", str(size)), ("X-Repo-Commit", COMMIT)]
        if fault == "self-later":
            linked = [("X-Linked-Etag", '"of-the-first-answer"'), ("X-Linked-Size", "7")]
        steps = 2 if fault == "self-steps" else 0
        return self.answer(307, linked + [("Location", f"/cache/{fault}/{steps}/{name}"), ("ETag", '"of-a-redirect"')])

    def resolve(self, fault, name, start):
        data = content(fault, name)
        tag = etag(fault, name)
        size = len(data)
        common = [("X-Repo-Commit", "f" * 40 if fault == "other-commit" else COMMIT), ("Accept-Ranges", "bytes")]
        if fault.startswith("self-"):
            return self.resolve_to_self(fault, name, tag, size)
        if fault.startswith("down-head") or (fault.startswith("down-get") and self.command == "GET"):
            return self.elsewhere(fault, 302, self.path, [("X-Linked-Etag", tag), ("X-Linked-Size", str(size))])
        if fault == "renamed":
            return self.answer(307, [("Location", self.path.replace("renamed", "private"))])
        if fault == "gone" and name == "config.json":
            return self.answer(404, [("X-Error-Code", "EntryNotFound")])
        if fault == "gated-file":
            return self.answer(403, [("X-Error-Code", "\tGatedRepo")])
        if is_large(name) and fault not in ("inline", "up", "down-get", "down-get-upper"):
            if fault == "linked-no-size":
                return self.answer(302, [("X-Linked-Etag", tag), ("Location", "http://127.0.0.1:1/")])
            if fault == "huge-weights":
                size = 1 << 50
            where = "http://127.0.0.1:1/" if fault == "no-store" else f"http://127.0.0.1:{self.server.store_port}/{fault}/{name}?signature=1"
            return self.answer(302, common + [("X-Linked-Etag", f'"{tag}"'), ("X-Linked-Size", str(size)), ("Location", where)])
        if fault == "etag-other":
            tag = f"a-mirror-{name}"
        if fault == "etag-equal":
            tag = "equal"
        if fault.startswith("etag-upper"):
            tag = tag.upper()
        if fault == "huge" and name == "vocab.txt":
            return self.answer(200, [*common, ("X-Linked-Size", str((1 << 28) - 1)), ("ETag", tag)], data)
        if fault == "crumbs" and name == "vocab.txt" and self.command == "GET":
            return self.part(data, data[start:start + 1], start)
        if fault == "drip-small" and name == "config.json" and self.command == "GET":
            self.answer(200, length=size)
            return self.drip(data)
        if fault == "drip-headers" and name == "config.json" and self.command == "GET":
            self.send_response(200)
            self.flush_headers()
            for i in range(100):
                self.wfile.write(b"X-%d: y\r\n" % i)
                time.sleep(0.2)
        headers = common + ([] if fault == "no-etag" else [("ETag", f'W/"{tag}"' if name == "vocab.txt" else f'"{tag}"')])
        if fault == "odd-headers":
            headers = common + [("ETagged", "1"), ("ETag", "x"), ("ETag", ""), ("ETag", '"'), ("ETag", '"x'), ("ETag", tag), ("X-Linked-Size", ""),
                                ("X-Linked-Size", "many"), ("X-Linked-Size", "1" * 30), ("X-Linked-Size", "12 "),
                                ("X-Linked-Size", "12x"), ("Content-Range", "items 1-2/3"), ("Content-Range", ""),
                                ("X-Error-Message", "x" * 300)]
        if fault == "bad-length":
            return self.answer(200, headers, length="many")
        if fault == "no-size":
            self.close_connection = True
            return self.answer(200, headers + [("Connection", "close")], length="")
        if fault in ("hash-small", "etag-upper-wrong") and name == "config.json" and self.command == "GET":
            data = data[:-1] + b"!"
        if fault in ETAGS and name == "vocab.txt" and first(fault, 2):  # with an ETag that is no hash, any content is as good
            headers = common + [("ETag", f'"{ETAGS[fault].replace("%s", etag(fault, "config.json"))}"')]
            return self.send(fault, bytes(size), start, headers)
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
        if fault == "range-refused" and start > 0:
            return self.answer(416, [("Content-Range", f"bytes */{start - 1}")])
        if fault == "range-refused-why" and start > 0:
            return self.answer(416, body=b"no such range" * 100)
        if fault == "range-short" and start > 0:
            return self.answer(206, [("Content-Range", f"bytes {start}-{len(data) - 2}/{len(data) - 1}")], data[start:-1])
        if fault == "range-elsewhere" and start > 0:
            return self.answer(206, [("Content-Range", f"bytes {start - 1}-{len(data) - 1}/{len(data)}")], data[start - 1:])
        if fault == "range-unnamed" and start > 0:
            return self.answer(206, [], data[start:])
        if fault == "range-unsized" and start > 0:
            self.close_connection = True
            return self.answer(206, [("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}"), ("Connection", "close")],
                               data[start:], "")
        if fault == "range-unasked":
            return self.answer(206, [("Content-Range", f"bytes 7-{len(data) - 1}/{len(data)}")], data[7:])
        if fault == "range-always":
            return self.answer(416)
        if fault == "drip-once" and first(fault):
            self.answer(200, body=data[:1000], length=len(data))
            return self.drip(data[1000:])
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
    servers = [Server(("127.0.0.1", 0), Handler) for _ in range(3)]
    servers[0].kind, servers[1].kind, servers[2].kind = "hub", "store", "secure"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(os.path.dirname(os.path.abspath(__file__)), "hub.pem"))
    servers[2].socket = context.wrap_socket(servers[2].socket, server_side=True)
    for server in servers:
        server.hub_port, server.store_port = (other.server_address[1] for other in servers[:2])
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(*(server.server_address[1] for server in servers), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
