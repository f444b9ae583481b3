"""loader.metrics() in the logs of Lightning and of Hugging Face's Trainer. Each class is made at its first use, because it needs its framework.

    lightning.pytorch.Trainer(callbacks=[LightningMetrics()], logger=…)
    trainer.callback_handler.callbacks.insert(0, TrainerMetrics())    # of transformers; in front of the callbacks that report to wandb and others
"""

from __future__ import annotations

from typing import Any

from ._order import frameworks


def _lightning(base: Any) -> Any:
    class LightningMetrics(base):
        """Logs the metrics of the training's loader to each logger of a Lightning Trainer, every log_every_n_steps steps."""

        __qualname__ = "LightningMetrics"  # pickle finds it by this name
        logged = -1  # the last step that was logged

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            step = trainer.global_step
            if step != self.logged and step % max(trainer.log_every_n_steps, 1) == 0:
                self.logged, found = step, metrics_of(trainer.train_dataloader)
                for logger in trainer.loggers if found else ():
                    logger.log_metrics(found, step=step)

    return LightningMetrics


def _trainer(base: Any) -> Any:
    class TrainerMetrics(base):
        """Adds the metrics of the training's loader to the logs of transformers' Trainer. The callbacks after this one report them."""

        __qualname__ = "TrainerMetrics"

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, train_dataloader: Any = None, **_: Any) -> None:
            if logs is not None:
                found = metrics_of(train_dataloader)
                logs.update(found)
                if state.log_history:
                    state.log_history[-1].update(found)

    return TrainerMetrics


def metrics_of(loader: Any) -> dict[str, float]:
    """The metrics of a loader, or of the one that a wrapper has as its attribute `loader`; empty if lcache does not watch it."""
    found = getattr(loader, "metrics", None) or getattr(getattr(loader, "loader", None), "metrics", None)
    return found() if callable(found) else {}


def __getattr__(name: str) -> Any:
    if name == "LightningMetrics":
        return globals().setdefault(name, _lightning(frameworks.lightning_callback()))
    if name == "TrainerMetrics":
        return globals().setdefault(name, _trainer(frameworks.trainer_callback()))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
