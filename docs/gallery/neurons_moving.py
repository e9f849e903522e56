"""Neurons move onto the teacher's directions, one direction after the other: an animation."""

from pathlib import Path

import dynamics

problem = dynamics.Problem(
    activation="he4", teacher=dynamics.Teacher.power_law(6, beta=1.0), width=24, dimension=128, seed=3
)
flow = dynamics.solve_overlaps(problem, rtol=1e-6, progress=False)
print("emergence times:", flow.emergence_time.round(1).values.tolist())

# With ffmpeg installed a name in .mp4 gives a film.
dynamics.animate(flow, Path("neurons_moving.gif"), overwrite=True)
