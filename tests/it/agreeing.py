"""Counts steps without end, and saves on all ranks together when one of them must leave."""

import argparse
import os
import pathlib
import sys
import time

sys.path.insert(0, "/opt/infill/contrib/python/src")
import infill  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--dir", type=pathlib.Path, required=True)
at = parser.parse_args().dir / "step"
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
step = int(at.read_text()) if at.exists() else 0
print(f"from {step} with {world} ranks", flush=True)


@infill.on_rescale
def save():
    if rank == 0:
        at.with_suffix(".new").write_text(str(step))
        at.with_suffix(".new").rename(at)
    print(f"saved at {step}", flush=True)


while True:
    time.sleep(0.1)
    step += 1
    infill.step(1, step)
