"""The paths that modules had before the packages were divided into rooms, importable for one release.

Programs of users, and files of results that name a function by its module, hold such paths.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.abc import Loader
    from types import ModuleType

__all__ = ["find_former_modules"]

#: Room: modules that moved into it, as old=new, or as one word where the name stayed. Old names follow the package's.
_MOVED = """
dynamics.problem: teacher start schedule checks memory stored_problem teachers=named_teachers
dynamics.compiler: compilation compiling_processes kernel_cache machine_code threads workers cores patience=stopping
dynamics.equations: systems.interface=interface
dynamics.equations.pairs: systems.vectors=vectors systems.vectors_kernels=vectors_kernels
    systems.link_kernels=link_kernels systems.array_kernels=array_kernels systems.rounding_kernels=rounding_kernels
    systems.field_kernels=field_kernels systems.single_field_kernels=single_field_kernels
    systems.unit_vectors=unit_vectors unit_field
dynamics.equations.overlaps: systems.overlaps=system systems.overlaps_kernels=overlaps_kernels
dynamics.equations.finite_step: systems.finite_step=system systems.finite_step_kernels=finite_step_kernels
    systems.step_moments=step_moments systems.step_moment_tables=step_moment_tables
    systems.step_moments_kernels=step_moments_kernels systems.step_moments_entry_kernels=step_moments_entry_kernels
dynamics.equations.committee: systems.committee=system systems.committee_links=links
    systems.committee_kernels=committee_kernels systems.committee_erf_kernels=committee_erf_kernels
    systems.committee_polynomial_kernels=committee_polynomial_kernels
dynamics.equations.mean_field: systems.mean_field=system systems.mean_field_axis=axis
    systems.mean_field_axis_kernels=mean_field_axis_kernels systems.mean_field_kernels=mean_field_kernels
    systems.mean_field_start=start systems.mean_field_subspace=subspace
    systems.mean_field_subspace_kernels=mean_field_subspace_kernels overlap_law systems.sphere_moments=sphere_moments
    mean_field_checks=checks
dynamics.equations.spherical: systems.spherical=system systems.spherical_kernels=spherical_kernels
    systems.coupling=coupling
dynamics.equations.transit: systems.transit=transit systems.transit_pieces=pieces systems.decoupled=decoupled
    systems.decoupled_kernels=decoupled_kernels
dynamics.integrators: flow_methods large_flow
dynamics.integrators.particles: particle_stepper=stepper systems.mean_field_sweep_kernels=mean_field_sweep_kernels
dynamics.integrators.explicit: integrators.dop853_tableau=dop853_tableau integrators.explicit_kernels=explicit_kernels
    integrators.explicit_stepper=stepper integrators.stage_sum_kernels=stage_sum_kernels
dynamics.integrators.bdf: integrators.bdf_kernels=bdf_kernels integrators.krylov_kernels=krylov_kernels
    integrators.newton_kernels=newton_kernels integrators.nordsieck_kernels=nordsieck_kernels
    vector_flow=vector_stepper
dynamics.integrators.sundials: integrators.sundials_kernels=sundials_kernels integrators.sundials_output=output
dynamics.integrators.descent: descent=stepper descent_kernels
dynamics.integrators.large_flow: large_flow.dense=dense large_flow.division=division
    large_flow.event_kernels=event_kernels large_flow.fallback=fallback large_flow.landing=landing
    large_flow.landing_kernels=landing_kernels large_flow.partial_kernels=partial_kernels large_flow.passes=passes
    large_flow.pause_kernels=pause_kernels large_flow.rests=rests large_flow.row_kernels=row_kernels
    large_flow.rows=rows large_flow.step_kernels=step_kernels large_flow.stepper=stepper
dynamics.integrators.large_flow.device: large_flow.torch_clusters=clusters large_flow.torch_device=device
    large_flow.torch_field=field large_flow.torch_step=step large_flow.torch_stepper=stepper
dynamics.theory: matching prediction scaling=asymptotics step_size descent_limit search_noise ideal_sums one_step
    analysis=fits slopes transfer=best_rates tuned_steps horizon
dynamics.runs: run=loop trackers companion kept_run checkpoint run_file records interrupts soundness outcome dataset
    variables provenance storage whole_files study_dataset=dataset
dynamics.commands: options command_line=parsing command_end=end study_command=study
dynamics.solve: flow=overlaps answers=decoupled mean_field committee spherical coupling resumption step_settings
    solve_end=end solve_resume=resume
dynamics.study: sweeps sweep_cluster=cluster sweep_grid=grid sweep_merge=merge sweep_points=points sweep_pool=pool
    sweep_preload=preload sweep_studies=studies study_file=file
dynamics.laws: scaling_laws=laws_of_a_problem scaling_families=laws_across_problems laws.law_dataset=law_variables chaos
    chaos_study
dynamics.report: pages.findings=findings pages.document=document pages.page=page pages.sections=sections
    pages.flows=flows pages.particles=particles pages.studies=studies pages.sweep=sweep tables=flows
    study_report=studies laws.tables=laws
dynamics.report.figures: plotting_checks=panels plotting=flows plotting_chaos=chaos plotting_particles=particles
    plotting_teachers=teachers laws.figures=laws laws.transfer_figure=transfer
sgd_check.engines: schedules generator_words=generators
sgd_check.engines.torch: online=engine torch_blocks=blocks torch_devices=devices torch_links=links
    torch_recursion=recursion torch_samples=samples torch_streams=streams spherical_online=spherical fused
    fused_kernels
sgd_check.engines.projected: projected=engine projected_kernels projected_single_kernels projected_batch_kernels
    projected_links=links
sgd_check.engines.diffusion: diffusion=engine diffusion_kernels diffusion_law=law diffusion_law_kernels
sgd_check.runs: simulation simulation_checks=checks plan course_of_runs=loop recording crossings observables
    resumption
sgd_check.verdicts: comparison alignment expectation judgement loss_band survival sides verdict=direction
    chaos=mean_field family=mean_field_runs
    finite_step defaults
sgd_check.report: findings table=comparison table_chaos=mean_field studies.tables=studies
sgd_check.report.figures: plotting=comparison plotting_loss=loss plotting_runs=runs plotting_simulation=runs
    plotting_style=style plotting_widths=widths studies.figures=studies
sgd_check.studies: studies.theory=work
sgd_check.run: run_end=end run_mean_field=mean_field run_options=options run_resume=resume
hermite: entrance=conversion
hermite.closed_forms: moment_families recognition
hermite.text: parser expressions series_text messages
dynamics: systems=equations pages=report
"""


def _present_paths() -> dict[str, str]:
    found: dict[str, str] = {}
    room = ""
    for word in _MOVED.split():
        if word.endswith(":"):
            room = word[:-1]
            continue
        old, _, new = word.partition("=")
        found[f"{room.partition('.')[0]}.{old}"] = f"{room}.{new or old}"
    return found


_PRESENT = _present_paths()


class _FormerModules:
    """Finds a module by its former path: the module itself, under both names."""

    @staticmethod
    def find_spec(name: str, *_path_and_target: object) -> ModuleSpec | None:
        """Return how to import a module by its former path, None for any other."""
        return ModuleSpec(name, cast("Loader", _FormerModules())) if name in _PRESENT else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module from its present path."""
        present = _PRESENT[spec.name]
        warnings.warn(f"Module {spec.name} is {present} now.", DeprecationWarning, stacklevel=2)
        module = import_module(present)
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back its own specification, which the import has replaced."""
        module.__spec__ = self._own_spec


def find_former_modules() -> None:
    """Let imports find modules by their former paths."""
    if _FormerModules not in sys.meta_path:
        sys.meta_path.insert(0, _FormerModules)  # first, since a former package has a new one's files
