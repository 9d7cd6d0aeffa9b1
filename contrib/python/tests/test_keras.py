"""The callback for Keras, in real training."""

import unittest

from agent import Agent
from tiers import need_frameworks

need_frameworks("torch", "keras")

TRAINING = """
    import time, numpy, torch, keras, infill

    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(0.02)

        def on_epoch_begin(self, epoch, logs=None):
            print("epoch", epoch, flush=True)

    torch.set_num_threads(1)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    callback = infill.keras.InfillCallback("backup", batch_size=8)
    model.fit(numpy.ones((160, 2)), numpy.ones(160), batch_size=8, epochs=6, verbose=0, callbacks=[callback, Slow()])
    print("steps", int(model.optimizer.iterations), flush=True)
"""


class Keras(unittest.TestCase):
    def test_rescales(self):
        agent = Agent()
        self.addCleanup(agent.close)
        done, epochs = 0, []
        for steps in (5, 30, 25):
            agent.start(TRAINING, KERAS_BACKEND="torch")
            reports = agent.reports_until(steps)
            agent.ask()
            ((code, out, err),) = agent.ended()
            self.assertEqual(code, 0, err)
            epochs.append([int(line.split()[1]) for line in out.splitlines()])
            # It may leave right after the awaited step.
            *_, last, saved = reports + agent.reports()
            self.assertEqual((last["samples"], sorted(saved)), ("8.0", ["samples", "saved"]))
            done += int(last["step"])
        agent.start(TRAINING, KERAS_BACKEND="torch")
        ((code, out, err),) = agent.ended()
        self.assertEqual(code, 0, err)
        *rest, steps = out.splitlines()
        epochs.append([int(line.split()[1]) for line in rest])
        # Each start continues in the interrupted epoch, with its weights and steps.
        for before, after in zip(epochs, epochs[1:]):
            self.assertEqual(after[0], before[-1])
        self.assertEqual(epochs[-1][-1], 5)
        self.assertEqual(steps, f"steps {done + 20 * len(epochs[-1])}")


if __name__ == "__main__":
    unittest.main()
