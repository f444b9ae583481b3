"""A training on several machines with Ray Train: python ray_train.py DATA [--workers N] [--epochs N] [--gpu]

Ray Train sets the same variables as torchrun, so LCACHE_CLUSTER=auto is enough: the first worker on each machine starts a server there, and the servers
find each other. The key is a file that all machines see. Never put the key itself into env_vars, which Ray's dashboard shows.

Without Ray Train, name the machines: lcache.open(DATA, cluster=",".join(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])).
"""

import argparse
import os

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train(config):
    import torch.distributed as dist
    from torch.utils.data import DistributedSampler

    from lcache.torch import DataLoader, Dataset

    dataset = Dataset(config["data"])
    loader = DataLoader(dataset, batch_size=16, sampler=DistributedSampler(dataset, seed=5))
    for epoch in range(config["epochs"]):
        loader.set_epoch(epoch)
        seen = 0
        for samples, labels in loader:
            seen += len(samples)  # the model's step is here
        dist.barrier()
        print(f"epoch {epoch} rank {dist.get_rank()}: {seen} samples", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--gpu", action="store_true")
    args = parser.parse_args()
    variables = {
        "LCACHE_CLUSTER": "auto",
        "LCACHE_CLUSTER_KEY": os.environ.get("LCACHE_CLUSTER_KEY", os.path.expanduser("~/.lcache.key")),
    }
    ray.init(runtime_env={"env_vars": variables})
    trainer = TorchTrainer(
        train,
        train_loop_config={"data": args.data, "epochs": args.epochs},
        scaling_config=ScalingConfig(num_workers=args.workers, use_gpu=args.gpu),
        run_config=RunConfig(name="train"),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
