"""The diffusion that online SGD tends to for small steps."""
