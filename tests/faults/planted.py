"""Faults made by hand, one line each, and the tests that must catch them: the list, and nothing that runs it.

Each stands for a mistake that a later change could make: a sign, a factor, a power, an index, a missing or a swapped
term. The tests named are those of the module that the fault is in, as few as catch it.
"""

from __future__ import annotations

from faults_of_methods import FAULTS_OF_METHODS
from faults_of_sgd import FAULTS_OF_SGD
from faults_of_systems import FAULTS_OF_SYSTEMS
from faults_of_theory import FAULTS_OF_THEORY

__all__ = ["FAULTS"]

FAULTS = FAULTS_OF_THEORY + FAULTS_OF_SYSTEMS + FAULTS_OF_METHODS + FAULTS_OF_SGD
