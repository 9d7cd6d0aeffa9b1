"""Does with folders what Hydra does: runs a program in a folder of its own for each start, named by the time.

Usage: hydra_stand_in.py [hydra.run.dir=DIR] [FLAG...]. The flags are those of trainee.py, which gets the folder.
"""

import os
import pathlib
import sys
import time

folder = pathlib.Path("outputs") / f"{time.time_ns()}"
flags = []
for word in sys.argv[1:]:
    if word.startswith("hydra.run.dir="):
        folder = pathlib.Path(word.partition("=")[2])
    else:
        flags.append(word)
folder.mkdir(parents=True, exist_ok=True)
trainee = pathlib.Path(__file__).with_name("trainee.py")
os.execv(sys.executable, [sys.executable, str(trainee), "--dir", str(folder), *flags])
