"""Runs the Python tests, each file in its own process and network, a few at a time."""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
SUITES = ("examples/demo/tests", "examples/tests", "contrib/python/tests")

#: These take longest, so they begin first.
FIRST = (
    "test_lightning.py",
    "test_transformers.py",
    "test_live_losing.py",
    "test_live_outdated.py",
    "test_train_ddp.py",
    "test_live.py",
    "test_live_repeated.py",
    "test_live_micro_batch.py",
    "test_live_stuck.py",
    "test_train_plans.py",
    "test_train_live.py",
    "test_keras.py",
    "test_torch.py",
    "test_collectives.py",
    "test_paced.py",
    "test_agreement.py",
)

#: The tests' reason for a skip without --all: contrib/python/tests/tiers.py.
ONLY_WITH_ALL = "only with --all"

#: If at most this many files fail beside others, they run once more alone.
MOST_RETRIED = 2

#: Number of slowest tests that are listed.
SLOWEST = 10

#: A file that takes longer hangs. Each of its waits is bounded, but their sum is not.
FILE_SECS = 900

#: unittest's exit code of a file without a matching test.
NO_TESTS = 5

#: In a separate network, a port that was free a moment ago is still free.
OWN_NETWORK = ["unshare", "--net", "bash", "-c", 'ip link set lo up && exec "$@"', "bash"]


@dataclasses.dataclass
class Done:
    """The result of a file."""

    path: pathlib.Path
    code: int
    secs: float
    output: str
    facts: list

    @property
    def passed(self):
        return self.code in (0, NO_TESTS)

    def of_kind(self, kind):
        return [(fact["test"], fact["value"]) for fact in self.facts if fact["kind"] == kind]


def main():
    options = parse()
    began = time.monotonic()
    every = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(run, path, options.patterns) for path in files()]
        for future in concurrent.futures.as_completed(running):
            every.append(future.result())
            show(every[-1])
    flaky = retry(every, options.patterns)
    if options.flaky:
        with open(options.flaky, "a") as file:
            file.writelines(f"{name}\n" for name in flaky)
    skipped = summarize(every, time.monotonic() - began)
    if options.skips:
        with open(options.skips, "a") as skips:
            skips.writelines(f"{line}\n" for line in skipped)
    if options.times:
        with open(options.times, "a") as times:
            times.writelines(f"{test}\t{secs:.2f}\n" for done in every for test, secs in done.of_kind("secs"))
    return verdict(every)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--skips", help="file that gets a line for each skipped test")
    parser.add_argument("--times", help="file that gets each test's name and seconds")
    parser.add_argument("--flaky", help="file that gets the name of each file that passed only alone")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    return parser.parse_args()


def retry(every, patterns):
    """Runs failed files once more, alone. Returns the names of those that then pass."""
    failed = [number for number, done in enumerate(every) if not done.passed]
    flaky = []
    if len(failed) > MOST_RETRIED:
        return flaky
    for number in failed:
        again = run(every[number].path, patterns)
        show(again)
        if again.passed:
            every[number] = again
            flaky.append(str(again.path.relative_to(REPOSITORY)))
            print(f"FLAKY, passed only alone: {flaky[-1]}", flush=True)
    return flaky


def files():
    """All test files, the slowest first."""
    found = [path for suite in SUITES for path in sorted((REPOSITORY / suite).glob("test_*.py"))]
    return sorted(found, key=lambda path: FIRST.index(path.name) if path.name in FIRST else len(FIRST))


def run(path, patterns):
    """Runs one file to its end."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        facts, output = pathlib.Path(scratch, "facts"), pathlib.Path(scratch, "output")
        facts.touch()
        words = [sys.executable, "-B", str(HERE / "one_file.py"), str(facts), str(path), *patterns]
        with output.open("w") as out:
            process = subprocess.Popen([*OWN_NETWORK, *words], stdout=out, stderr=out, start_new_session=True)
            try:
                code = process.wait(FILE_SECS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
                out.write(f"killed after {FILE_SECS} s\n")
        known = [json.loads(line) for line in facts.read_text().splitlines()]
        # A file that skips as a whole ignores the patterns.
        known = [fact for fact in known if not patterns or any(pattern in fact["test"] for pattern in patterns)]
        return Done(path, code, time.monotonic() - began, output.read_text(errors="replace"), known)


def show(done):
    """Prints the file's whole output, if it has any."""
    if done.code == NO_TESTS:
        return
    verdict = "passed" if done.passed else f"FAILED, exit {done.code},"
    print(f"==== {done.path.relative_to(REPOSITORY)}: {verdict} in {done.secs:.1f} s\n{done.output}", flush=True)


def summarize(every, secs):
    """Prints the slowest tests and the skipped ones; returns the lines of the skipped ones."""
    durations = sorted((fact for done in every for fact in done.of_kind("secs")), key=lambda fact: -fact[1])
    print("Slowest tests:")
    for test, took in durations[:SLOWEST]:
        print(f"{took:7.1f} s  {test}")
    skips = sorted(fact for done in every for fact in done.of_kind("skipped"))
    lines = [f"SKIPPED {test}: {reason}" for test, reason in skips if reason != ONLY_WITH_ALL]
    print(*lines, sep="\n", end="\n" if lines else "")
    left = len(skips) - len(lines)
    ran = {test for test, _ in durations} - {test for test, _ in skips}
    print(f"{len(ran)} tests ran in {secs:.1f} s, {len(lines)} were skipped, {left} run only with --all", flush=True)
    return lines


def verdict(every):
    failed = sorted(str(done.path.relative_to(REPOSITORY)) for done in every if not done.passed)
    if failed:
        print(f"FAILED: {' '.join(failed)}")
        return 1
    if not any(done.facts for done in every):
        print("FAILED: no test name matches")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
