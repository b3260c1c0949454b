"""hostile_http.py - an HTTP server that serves files well, or badly on purpose.

with Server(folder) as s: s.url + "/KIND/NAME" answers as KIND says (KINDS);
s.requests is the list of (kind, name, Range header or None).
"""
import http.server
import os
import threading
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        parts = self.path.strip("/").split("/")
        kind, name = parts[0], parts[-1]
        path = os.path.join(self.server.folder, name)
        self.server.requests.append((kind, name, self.headers.get("Range")))
        self.close_connection = True
        if kind not in KINDS or not os.path.isfile(path):
            self.send_error(404)
            return
        with open(path, "rb") as f:
            body = f.read()
        try:
            KINDS[kind](self, body)
        except OSError:
            pass  # the client had enough

    def head(self, code, *headers):
        self.send_response(code)
        for key, value in headers:
            self.send_header(key, value)
        self.end_headers()

    def start(self):
        """The first byte that the client wants."""
        asked = self.headers.get("Range")
        return int(asked[len("bytes="):-1]) if asked else 0

    def serve(self, body, part=None):
        """As it should be; `part`: only so much of what was announced."""
        at = self.start()
        rest = body[at:]
        if at:
            self.head(206, ("Content-Length", len(rest)),
                      ("Content-Range",
                       f"bytes {at}-{len(body) - 1}/{len(body)}"))
        else:
            self.head(200, ("Content-Length", len(rest)))
        self.wfile.write(rest if part is None else rest[:part])


def slow(self, body):
    """64 KiB every 50 ms: the sleep is the line's speed, not a wait. Once the
    server is `hasty`, the rest at once."""
    at = self.start()
    self.head(206 if at else 200, ("Content-Length", len(body) - at),
              *([("Content-Range", f"bytes {at}-{len(body) - 1}/{len(body)}")]
                if at else []))
    for i in range(at, len(body), 1 << 16):
        if self.server.hasty:
            self.wfile.write(body[i:])
            return
        self.wfile.write(body[i:i + (1 << 16)])
        time.sleep(0.05)


def unavailable(self, body):
    """Busy twice, then well."""
    self.server.busy += 1
    if self.server.busy <= 2:
        self.head(503, ("Retry-After", "1"), ("Content-Length", "0"))
    else:
        self.serve(body)


def endless(self, body):
    self.head(200, ("Transfer-Encoding", "chunked"))
    chunk = b"10000\r\n" + bytes(1 << 16) + b"\r\n"
    while True:
        self.wfile.write(chunk)


def headers(self, body):
    self.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        self.wfile.write(b"X-More: " + b"x" * 1000 + b"\r\n")


def stall(self, body):
    self.head(200, ("Content-Length", len(body)))
    self.wfile.write(body[:1000])
    self.server.over.wait(60)


def silent(self, body):
    self.server.over.wait(60)


def loop(self, body):
    self.head(302, ("Location", self.path + "x"), ("Content-Length", "0"))


def spin(self, body):
    self.head(302, ("Location", self.path), ("Content-Length", "0"))


def to_file(self, body):
    self.head(302, ("Location", "file:///etc/passwd"),
              ("Content-Length", "0"))


def other_range(self, body):
    self.head(206, ("Content-Length", len(body)),
              ("Content-Range", f"bytes 7-{len(body) + 6}/{len(body) + 7}"))
    self.wfile.write(body)


KINDS = {
    "good": lambda self, body: self.serve(body),
    "slow": slow,
    "noranges": lambda self, body: (
        self.head(200, ("Content-Length", len(body))),
        self.wfile.write(body)),
    "unavailable": unavailable,
    # Those never give the file.
    "wrong": lambda self, body: self.serve(bytes(len(body))),
    "altered": lambda self, body: self.serve(
        body[:-9] + bytes([body[-9] ^ 1]) + body[-8:]),
    "shorter": lambda self, body: self.serve(body[:-1]),
    "longer": lambda self, body: self.serve(body + b"x"),
    "broken": lambda self, body: self.serve(body, part=100),
    "endless": endless,
    "headers": headers,
    "stall": stall,
    "silent": silent,
    "loop": loop,
    "spin": spin,
    "to_file": to_file,
    "other_range": other_range,
    "empty": lambda self, body: self.head(204),
}
BAD = list(KINDS)[list(KINDS).index("wrong"):]


class Server:
    def __init__(self, folder=None):
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.folder = folder
        self.http.requests = self.requests = []
        self.http.busy = 0
        self.http.hasty = False
        self.http.over = threading.Event()
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *what):
        self.http.over.set()
        self.http.shutdown()
        self.http.server_close()
