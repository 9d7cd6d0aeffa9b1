"""JAX over several processes, with Orbax checkpoints: infill run -- python3 jax_orbax.py"""

import os

import infill
import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from spirals import STEPS, order, spirals, tell, tell_end

jax.config.update("jax_enable_x64", True)
place = infill.plan()
if place.world_size > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # Not needed on GPUs.
    jax.distributed.initialize(
        f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", place.world_size, place.rank
    )
mesh = Mesh(jax.devices(), "data")
whole, shared = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))

x, y = spirals()
keys = jax.random.split(jax.random.key(1), 2)
net = {
    "in": jax.random.normal(keys[0], (2, 64)) / 1.5, "bias": jnp.zeros(64),
    "out": jax.random.normal(keys[1], (64, 2)) / 8,
}  # fmt: skip
adam = optax.adam(0.01)


def loss_of(net, points, arms):
    logits = jnp.tanh(points @ net["in"] + net["bias"]) @ net["out"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, arms).mean()


@jax.jit
def train(state, points, arms):
    gradient = jax.grad(loss_of)(state["net"], points, arms)
    change, adam_state = adam.update(gradient, state["adam"])
    return {"net": optax.apply_updates(state["net"], change), "adam": adam_state, "step": state["step"] + 1}


# The same on all processes, as arrays over all devices.
state = {"net": net, "adam": adam.init(net), "step": jnp.array(0)}
state = jax.tree.map(lambda leaf: jax.make_array_from_callback(leaf.shape, whole, lambda at: leaf[at]), state)
checkpoints = ocp.CheckpointManager(os.path.abspath("checkpoints"), options=ocp.CheckpointManagerOptions(max_to_keep=2))
if checkpoints.latest_step() is not None:
    state = checkpoints.restore(checkpoints.latest_step(), args=ocp.args.StandardRestore(state))
step = int(state["step"])


@infill.on_rescale
def save():
    checkpoints.save(step, args=ocp.args.StandardSave(state))
    checkpoints.wait_until_finished()


while step < STEPS:
    batch = order(step)
    points = jax.make_array_from_callback((len(batch), 2), shared, lambda at: x[batch[at[0]]])
    arms = jax.make_array_from_callback((len(batch),), shared, lambda at: y[batch[at[0]]])
    state = train(state, points, arms)
    step += 1
    tell(step, place.rank, place.world_size)
    infill.step(samples=len(batch) // place.world_size, step=step)

final = jax.tree.map(lambda leaf: leaf.addressable_data(0), state["net"])
if place.rank == 0:
    tell_end("JAX + Orbax", jax.__version__, float(loss_of(final, x, y)))
