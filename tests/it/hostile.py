"""What an ordinary user can do at the daemon's port or in front of it: answer that all is done, or relay messages.

    hostile.py impostor PORT LOG UID
    hostile.py relay PORT LOG REAL_PORT SWITCH

The impostor answers instead of the daemon, as well as it can: with a secret, with a session that it has sealed itself
for the user UID, or with an unsealed session. The relay passes everything on to the daemon. Once the file SWITCH
exists, it answers requests for orders itself and says that all is done. Both record the requests and their answers,
in lines of JSON.
"""

import collections
import hashlib
import hmac
import http.client
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FINISH = json.dumps({"version": 9, "directive": {"finish": {"code": 0}}, "wings": []}).encode()
KEY = bytes(range(32))
LOCK = threading.Lock()


def note(log, **what):
    with LOCK, open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


def mac(route, counter, status, body):
    fields = [b"answer", route.encode(), str(counter).encode(), str(status).encode(), body]
    return hmac.new(KEY, b"".join(len(f).to_bytes(8, "big") + f for f in fields), hashlib.sha256).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    count = 0

    def log_message(self, *args):
        pass

    def answer(self, status, body, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.do_POST()

    def do_POST(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with LOCK:
            Handler.count += 1
            number = Handler.count
        status, body, headers = self.server.reply(self, sent, number)
        note(
            self.server.log,
            method=self.command,
            path=self.path,
            headers=dict(self.headers),
            body=sent.decode(),
            status=status,
            answer=body.decode(),
            answer_headers=dict(headers),
        )
        self.answer(status, body, headers)


class Impostor(ThreadingHTTPServer):
    def __init__(self, *args):
        super().__init__(*args)
        self.polls = collections.Counter()

    def last_poll(self, session):
        """Whether this poll is the third of its session. After it the agent must say hello again."""
        with LOCK:
            self.polls[session] += 1
            return self.polls[session] >= 3

    def reply(self, request, sent, number):
        counter = request.headers.get("Infill-Counter", 0)
        if request.path.endswith("/poll") and self.last_poll(request.headers.get("Infill-Session")):
            return 401, b'{"error":"not proved"}', []
        if request.path.endswith("/poll") or request.path.endswith("/report"):
            body = FINISH if request.path.endswith("/poll") else b'{"error":"never heard of"}'
            status = 200 if request.path.endswith("/poll") else 422
            return status, body, [("Infill-Mac", mac(request.path, counter, status, body))]
        body = b"ok\n"
        job = 0
        if request.path.endswith("/hello"):
            welcome = {"secret": "0" * 64, "preempt_leave_secs": 2.0, "protocol": 2}
            welcome["capabilities"] = ["sealed_session"]
            body, job = json.dumps(welcome).encode(), json.loads(sent)["job"]
        elif request.path.endswith("/links"):
            body = json.dumps({"ticket": "0" * 64, "lasts_secs": 60}).encode()
        return 200, body, self.seal(request, job, number) + [("Infill-Mac", mac(request.path, 0, 200, body))]

    def seal(self, request, job, number):
        payload = f"infill1 welcome {job} {request.headers.get('Infill-Nonce', 'n')} s1 {KEY.hex()}"
        if number % 3 == 1:
            return []
        if number % 3 == 2:
            return [("Infill-Seal", "open " + payload)]
        words = ["munge", f"--restrict-uid={self.uid}"]
        sealed = subprocess.run(words, input=payload.encode(), stdout=subprocess.PIPE, check=True)
        return [("Infill-Seal", "munge " + sealed.stdout.decode().strip())]


class Relay(ThreadingHTTPServer):
    def reply(self, request, sent, number):
        del number
        real = http.client.HTTPConnection("127.0.0.1", self.real, timeout=60)
        names = {"connection", "host", "content-length"}
        headers = {k: v for k, v in request.headers.items() if k.lower() not in names}
        real.request(request.command, request.path, sent, headers)
        answer = real.getresponse()
        body = answer.read()
        kept = [(k, v) for k, v in answer.getheaders() if k.lower().startswith(("infill-", "content-type"))]
        if os.path.exists(self.switch) and request.path.endswith("/poll"):
            return 200, FINISH, kept
        return answer.status, body, kept


def main():
    kind, port, log = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    server = (Impostor if kind == "impostor" else Relay)(("127.0.0.1", port), Handler)
    server.log = log
    if kind == "impostor":
        server.uid = sys.argv[4]
    else:
        server.real, server.switch = int(sys.argv[4]), sys.argv[5]
    server.serve_forever()


if __name__ == "__main__":
    main()
