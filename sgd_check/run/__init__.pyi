from .__main__ import main as main
from .options import build_parser as build_parser
