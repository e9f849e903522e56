"""Steps of very many particles, by sweeps over blocks of them that stay in cache."""
