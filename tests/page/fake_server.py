"""fake_server.py - the page of a real server, and answers that a test writes itself.

A test sets `health` (what /health says), `health_status`, `key`, and `answer`: a function (handler, body) that is called
for each request for an answer. What was asked is in `asked`.
"""
import copy
import http.server
import json
import threading
import time
import urllib.request

MIB = 1 << 20
HEALTH = {
    "status": "ready", "model": "a model", "device": "cpu", "device_type": "cpu", "target_index": 1,
    "ladder": {"targets": ["sim", "cpu"], "target_index": 1, "target": "cpu", "attempts": [
        {"target_index": 0, "target": "sim", "state": "failed", "stage": "plan_made", "class": "out_of_memory",
         "meaning": "the device is full", "message": "sim: no room", "hint": "take less", "seconds": 0.25},
        {"target_index": 1, "target": "cpu", "state": "in_use", "stage": "warm_up", "seconds": 1.5}]},
    "memory": {
        "budget_bytes": 400 * MIB, "predicted_peak_bytes": 360 * MIB, "resident_bytes": 320 * MIB,
        "resident_peak_bytes": 330 * MIB, "container_limit_bytes": None, "streamed_bytes": 0,
        "requests_bytes": 2 * MIB, "requests_limit_bytes": 16 * MIB,
        "devices": [{"device": "host", "bytes": 300 * MIB, "peak_bytes": 310 * MIB, "budget_bytes": 400 * MIB,
                     "purposes": {"weights": 160 * MIB, "kv": 80 * MIB, "workspace": 40 * MIB, "unaccounted": 20 * MIB}},
                    {"device": "sim", "bytes": 0, "peak_bytes": 5 * MIB, "budget_bytes": None, "purposes": {}}]},
    "kv": {"pages_used": 12, "pages_kept": 8, "pages_total": 40, "page_bytes": 65536, "page_tokens": 64},
    "queue": {"running": 3, "waiting": 2, "waiting_limit": 128, "sequences": 3, "sequences_limit": 8,
              "connections": 4, "connections_limit": 2048},
    "context": 2048, "chat": True, "tokens_per_second": 41.5, "uptime_seconds": 75, "version": "0.0.1",
}


def put_events(handler, pieces, end=True):
    """A chat's answer, a piece each; without `end` the connection just closes."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Connection", "close")
    handler.end_headers()
    for piece in pieces:
        event = piece if isinstance(piece, dict) else {"choices": [{"index": 0, "delta": {"content": piece}}]}
        handler.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        handler.wfile.flush()
    if end:
        handler.wfile.write(b"data: [DONE]\n\n")


def put_problem(handler, status, code, message, retry=0):
    body = json.dumps({"error": {"message": message, "type": "t", "param": None, "code": code}}).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    if retry:
        handler.send_header("Retry-After", str(retry))
    handler.end_headers()
    handler.wfile.write(body)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def is_known(self):
        fake = self.server.fake
        if fake.key is None or self.headers.get("Authorization") == "Bearer " + fake.key:
            return True
        put_problem(self, 401, "invalid_api_key", "this server wants a key")
        return False

    def do_GET(self):
        fake = self.server.fake
        if self.path in fake.files:
            headers, body = fake.files[self.path]
            self.send_response(200)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        elif self.path == "/health":
            fake.looks += 1
            if not self.is_known():
                return
            body = json.dumps(fake.health).encode()
            self.send_response(fake.health_status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            put_problem(self, 404, "not_found", "no such path")

    def do_POST(self):
        fake = self.server.fake
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.is_known():
            return
        fake.asked.append((self.path, body))
        fake.answer(self, body)


class FakeServer:
    def __init__(self, real):
        self.files = {}
        for path in ("/", "/page.css", "/page.js"):
            with urllib.request.urlopen(real + path, timeout=60) as answer:
                kept = [(k, v) for k, v in answer.headers.items() if k.lower() not in ("date", "connection")]
                self.files[path] = kept, answer.read()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.fake = self
        self.url = "http://127.0.0.1:%d/" % self.server.server_port
        self.reset()
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reset(self):
        self.health, self.health_status, self.key = copy.deepcopy(HEALTH), 200, None
        self.asked, self.looks = [], 0
        self.is_left = threading.Event()  # somebody who was being answered has gone
        self.answer = lambda handler, body: put_events(handler, ["Hello", ", ", "you."])

    def answer_without_end(self, handler, _):
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            while True:
                event = {"choices": [{"index": 0, "delta": {"content": "on and "}}]}
                handler.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
                time.sleep(0.01)
        except OSError:
            self.is_left.set()
        handler.close_connection = True
