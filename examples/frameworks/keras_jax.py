"""Keras 3 on JAX, data-parallel over several processes: KERAS_BACKEND=jax infill run -- python3 keras_jax.py"""

import os

import infill
import jax
import keras
import numpy
from spirals import STEPS, order, spirals, tell, tell_end

keras.config.set_floatx("float64")
keras.utils.set_random_seed(1)
place = infill.plan()
if place.world_size > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # Not needed on GPUs.
    jax.distributed.initialize(
        f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", place.world_size, place.rank
    )
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=keras.distribution.list_devices()))

x, y = spirals()
net = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(64, "tanh"), keras.layers.Dense(2)])
net.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
net.optimizer.build(net.trainable_variables)
values = [*net.variables, *net.optimizer.variables]
step = 0

if os.path.exists("checkpoint.npz"):
    with numpy.load("checkpoint.npz") as saved:
        step = int(saved["step"])
        for number, variable in enumerate(values):
            variable.assign(saved[str(number)])


@infill.on_rescale
def save():
    if place.rank == 0:
        arrays = {str(number): keras.ops.convert_to_numpy(variable) for number, variable in enumerate(values)}
        with open("checkpoint.part", "wb") as file:
            numpy.savez(file, step=step, **arrays)
        os.replace("checkpoint.part", "checkpoint.npz")


while step < STEPS:
    batch = order(step)
    share = len(batch) // place.world_size
    mine = batch[place.rank * share :][:share]
    net.train_on_batch(x[mine], y[mine])
    step += 1
    tell(step, place.rank, place.world_size)
    infill.step(samples=share, step=step)

if place.rank == 0:
    logits = x
    for layer in net.layers:
        weight, bias = (keras.ops.convert_to_numpy(v.value.addressable_data(0)) for v in layer.variables)
        logits = logits @ weight + bias
        logits = numpy.tanh(logits) if layer is net.layers[0] else logits
    likely = logits[numpy.arange(len(y)), y] - numpy.log(numpy.exp(logits).sum(1))
    tell_end("Keras 3", keras.__version__, -likely.mean())
