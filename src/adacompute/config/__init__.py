"""Settings: the only room that reads the environment and TOML. Knows nothing of what uses them."""

from adacompute.config.engines import ray_address
from adacompute.config.keys import KeyConfig, read_key, read_keys
from adacompute.config.load import load_config
from adacompute.config.stages import (
    AnswersConfig,
    CollectConfig,
    Config,
    EndpointConfig,
    ScoreConfig,
    ServeConfig,
)

__all__ = [
    "AnswersConfig",
    "CollectConfig",
    "Config",
    "EndpointConfig",
    "KeyConfig",
    "ScoreConfig",
    "ServeConfig",
    "load_config",
    "ray_address",
    "read_key",
    "read_keys",
]
