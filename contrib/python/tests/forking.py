"""Processes that start with PyTorch imported, because they are forked from one that has imported it.

The import costs 1.5 s of a processor. The program itself runs as under a new interpreter, with its own environment,
directory and files.
"""

import ctypes
import faulthandler
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import types

#: Modules that our programs import. DistributedDataParallel imports the last one when it is first made.
PRELOADED = ("torch", "torch.distributed", "torch.nn.parallel", "torch.utils.data", "torch._dynamo")

#: Longest request: a program and an environment.
REQUEST_BYTES = 100_000

#: From linux/prctl.h.
PR_SET_CHILD_SUBREAPER = 36

POLL_SECS = 0.005


class Process:
    """The part of subprocess.Popen that the tests need.

    `words` is `[python, "-B", "-c", TEXT]` or `[python, "-B", FILE, ARG…]`.
    """

    _server = None

    def __init__(self, words, env, cwd, stdout, stderr, **_):
        self.args, self.returncode, self._printed = words, None, None
        self._files = [tempfile.TemporaryFile("w+") if file is subprocess.PIPE else file for file in (stdout, stderr)]
        request = json.dumps({"words": words[2:], "environment": env, "directory": str(cwd)}).encode()
        if Process._server is None:
            Process._server = start_server()
        socket.send_fds(self._server, [request], [file.fileno() for file in self._files])
        self.pid = int(self._server.recv(100))

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout=None):
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(POLL_SECS)
        return self.returncode

    def communicate(self, timeout=None):
        """Waits for the end; returns the output."""
        self.wait(timeout)
        if self._printed is None:
            self._printed = tuple(map(read_and_close, self._files))
        return self._printed

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)


def read_and_close(file):
    """All of a file, unless its owner has closed it."""
    if file.closed:
        return None
    with file:
        file.seek(0)
        return file.read()


def start_server():
    """Starts the process to fork from. This process becomes the parent of its forks."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("this process cannot adopt others")
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        words = [sys.executable, "-B", __file__, str(its.fileno())]
        process = subprocess.Popen(words, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL, start_new_session=True)
    # It ends when this process does, because that closes the socket. So it is not waited for, and no warning must
    # appear.
    process.returncode = 0
    return ours


def serve(conversation):
    """Forks a process for each request. Returns in each of these, with the request and its files."""
    while True:
        request, files, _, _ = socket.recv_fds(conversation, REQUEST_BYTES, 2)
        if not request:
            sys.exit()
        pids, tell = os.pipe()
        middle = os.fork()
        if middle == 0:
            pid = os.fork()
            if pid:
                os.write(tell, str(pid).encode())
                os._exit(0)
            for file in (pids, tell, conversation.detach()):
                os.close(file)
            return json.loads(request), files
        # Then its child is an orphan, and the requesting process has adopted it.
        os.waitpid(middle, 0)
        conversation.send(os.read(pids, 100))
        for file in (pids, tell, *files):
            os.close(file)


def become(environment, directory, files):
    """Gives this process its environment, its directory and its files."""
    os.setsid()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
        os.close(file)
    if environment.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()


def run(words):
    """Runs a program as the interpreter does."""
    if words[0] == "-c":
        folder, name, text = "", "<string>", words[1]
        sys.argv = words[:1] + words[2:]
    else:
        folder, name = os.path.dirname(words[0]), words[0]
        with open(name) as file:
            text = file.read()
        sys.argv = words
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = [folder, *(path for path in paths if path not in sys.path)]
    main = types.ModuleType("__main__")
    main.__file__ = name
    sys.modules["__main__"] = main
    exec(compile(text, name, "exec"), main.__dict__)


if __name__ == "__main__":
    for module in PRELOADED:
        __import__(module)
    asked, opened = serve(socket.socket(fileno=int(sys.argv[1])))
    become(asked["environment"], asked["directory"], opened)
    run(asked["words"])
