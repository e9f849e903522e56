from .__main__ import build_parser as build_parser
from .__main__ import main as main
