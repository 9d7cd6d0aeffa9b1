"""What the programs of this folder share: two spirals to classify, and the lines that they print."""

import os
import time

import numpy

#: Samples of an epoch, and of one step at any number of ranks.
SAMPLES, GLOBAL_BATCH = 1024, 64
STEPS = int(os.environ.get("STEPS", 160))
#: Stands for the work of a step, which more ranks do in less time: seconds.
PACE = float(os.environ.get("PACE", 0)) / int(os.environ.get("WORLD_SIZE", 1))


def spirals():
    """Points on two arms, and the arm of each."""
    random = numpy.random.default_rng(1)
    arm = numpy.arange(SAMPLES) % 2
    t = 3 * numpy.pi * numpy.sqrt(random.random(SAMPLES))
    angle = t + arm * numpy.pi
    points = numpy.stack([t * numpy.cos(angle), t * numpy.sin(angle)], axis=1) / 10
    return points + random.normal(size=(SAMPLES, 2)) * 0.02, arm


def order(step):
    """The samples of a step: each comes once in an epoch. It depends on nothing but the step."""
    epoch, batch = divmod(step, SAMPLES // GLOBAL_BATCH)
    shuffled = numpy.random.default_rng(epoch).permutation(SAMPLES)
    return shuffled[batch * GLOBAL_BATCH : (batch + 1) * GLOBAL_BATCH]


def tell(step, rank, world):
    """Says that this step has ended."""
    if not os.path.exists("hurry"):
        time.sleep(PACE)
    if rank == 0:
        print(f"step={step} world={world} time={time.time():.3f}", flush=True)


def tell_end(framework, version, loss):
    """Prints the final loss."""
    print(f"{framework} {version} loss={loss:.12f}", flush=True)
