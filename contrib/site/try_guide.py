#!/usr/bin/env python3
"""Follows a guide literally: try_guide.py GUIDE.md [--user USER --folder FOLDER] [--port PORT] [--env NAME=VALUE]…

Runs each block of shell commands in the guide, in order, and stops at the first that fails. Blocks with a title are
files, which it writes. Without --user the commands run on this machine in the repository, as in the tutorial. With --user
they run in the minicluster of INFILL_MINICLUSTER_DIR, as that user and in that folder.

A comment before a block says more:

    <!-- try: until REGEX -->    repeat until the output matches, for seven minutes
    <!-- try: background -->     the command keeps running. It is stopped at the end, or by the next of this kind
    <!-- try: alone -->          what runs in the background is stopped before
    <!-- try: elsewhere WHY -->  not here: WHY names what runs it

--port is for a machine on which another daemon has infill's port: it replaces 6810, and goes into /etc/infill/infill.toml.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
MINICLUSTER = "slurm/minicluster/minicluster"

BLOCK = re.compile(
    r"(?:<!-- try: (?P<how>[^\n]*?) -->\n+)?^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)

#: Each block is a shell of its own. As in the reader's shell, the number of the job stays known.
KEEP_JOB = """[ ! -e .job ] || . ./.job
trap '[ -z "${job-}" ] || declare -p job >.job' EXIT
"""

#: Time for a command, for what a block waits for, and for a background command to begin, seconds.
COMMAND_SECS, UNTIL_SECS, BEGIN_SECS = 300.0, 420.0, 4.0


@dataclasses.dataclass
class Block:
    """A block of a guide: commands, or a file."""

    language: str
    how: str
    title: str
    text: str


class Trial:
    """A guide that is being followed."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.background: subprocess.Popen[str] | None = None
        self.ran = 0
        #: Each block is a shell of its own; functions that a block defines hold for the next ones.
        self.functions = ""

    def _command(self, text: str) -> list[str]:
        options = self.options
        if options.port:
            text = text.replace(
                "[daemon]\n",
                f'[agent]\nurl = "http://127.0.0.1:{options.port}"\n[daemon]\nlisten = "127.0.0.1:{options.port}"\n',
            )
        if not options.user:
            return ["bash", "-eu", "-o", "pipefail", "-c", f"{self.functions}\n{text}"]
        settings = "".join(f"export {shlex.quote(setting)}\n" for setting in options.env)
        inside = f"cd {shlex.quote(options.folder)}\n{settings}{KEEP_JOB}{text}"
        return [MINICLUSTER, "exec", "--user", options.user, "--", "bash", "-eu", "-o", "pipefail", "-c", inside]

    def _run(self, text: str) -> tuple[int, str]:
        done = subprocess.run(
            self._command(text), cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=COMMAND_SECS, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    def _until(self, text: str, wanted: str) -> None:
        end = time.monotonic() + UNTIL_SECS
        output = ""
        while time.monotonic() < end:
            code, output = self._run(text)
            if code == 0 and re.search(wanted, output):
                print(output, flush=True)
                return
            time.sleep(1)
        sys.exit(f"{output}\ntry_guide: for {UNTIL_SECS:.0f} s nothing matched {wanted!r}:\n{text}")

    def stop_background(self) -> None:
        """Ends what runs in the background, as Ctrl-C would."""
        if self.background:
            os.killpg(self.background.pid, signal.SIGINT)
            self.background.wait(timeout=30)
            self.background = None

    def _begin(self, text: str) -> None:
        self.stop_background()
        self.background = subprocess.Popen(
            self._command(text), cwd=REPOSITORY, stdin=subprocess.DEVNULL, text=True, start_new_session=True
        )
        time.sleep(BEGIN_SECS)
        if self.background.poll() is not None:
            sys.exit(f"try_guide: ended at once with {self.background.returncode}:\n{text}")

    def _write(self, name: str, text: str) -> None:
        command = self._command(f"cat > {shlex.quote(name)}")
        subprocess.run(command, cwd=REPOSITORY, input=text, text=True, check=True)

    def follow(self, block: Block) -> None:
        """Runs the commands of a block, or writes its file."""
        how, _, wanted = block.how.partition(" ")
        if how == "elsewhere":
            return
        if block.title:
            print(f"--- writes {block.title}", flush=True)
            self._write(block.title, block.text)
            return
        if block.language != "sh":
            return
        print(f"--- {block.text}", end="", flush=True)
        self.ran += 1
        if how == "until":
            self._until(block.text, wanted)
        elif how == "background":
            self._begin(block.text)
        else:
            if how == "alone":
                self.stop_background()
            code, output = self._run(block.text)
            print(output, flush=True)
            if code:
                sys.exit(f"try_guide: exit code {code}:\n{block.text}")
        self.functions += "".join(re.findall(r"^\w+\(\) \{.*\}$\n?", block.text, re.MULTILINE))


def blocks(guide: str) -> list[Block]:
    """The blocks of a guide, in order."""
    found = BLOCK.finditer(guide)
    return [Block(b["language"], b["how"] or "", b["title"] or "", b["text"]) for b in found]


def main() -> None:
    """Follows one guide."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("guide", type=pathlib.Path)
    parser.add_argument("--user", default="")
    parser.add_argument("--folder", default="/scratch")
    parser.add_argument("--port", type=int)
    parser.add_argument("--env", action="append", default=[])
    options = parser.parse_args()
    trial = Trial(options)
    try:
        for block in blocks(options.guide.read_text(encoding="utf-8")):
            trial.follow(block)
    finally:
        trial.stop_background()
    if not trial.ran:
        sys.exit(f"try_guide: {options.guide} has no commands")
    print(f"try_guide: {options.guide}: {trial.ran} blocks of commands ran", flush=True)


if __name__ == "__main__":
    main()
