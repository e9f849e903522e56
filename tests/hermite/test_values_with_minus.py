"""Tests of values that begin with a minus on command lines."""

import pytest

from hermite.text.command_line import PlainParser, UsageError, command_parser


@pytest.fixture
def parser():
    parser = command_parser("hermite.exponents", "about", "", PlainParser)
    parser.add_argument("link")
    parser.add_argument("--weights")
    parser.add_argument("--plot", nargs="?", const="shown")
    parser.add_argument("--json", action="store_true")
    return parser


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["-h4(z)"], {"link": "-h4(z)"}),
        (["--weights", "-1,0.5", "relu"], {"link": "relu", "weights": "-1,0.5"}),
        (["relu", "--weights", "-,0,1"], {"link": "relu", "weights": "-,0,1"}),
        (["--weights", "-z", "relu"], {"link": "relu", "weights": "-z"}),
        (["--weights", "-", "relu"], {"link": "relu", "weights": "-"}),
        (["--json", "-2*h3(z)", "--weights", "-x1+x2"], {"link": "-2*h3(z)", "json": True, "weights": "-x1+x2"}),
        (["relu", "--plot", "-1.png"], {"link": "relu", "plot": "-1.png"}),
        (["--weights=-1", "--", "-z"], {"link": "-z", "weights": "-1"}),
        (["relu", "--plot"], {"link": "relu", "plot": "shown"}),
    ],
)
def test_a_word_with_a_minus_that_is_no_flag_is_a_value(parser, words, found):
    empty = {"link": None, "weights": None, "plot": None, "json": False, "version": None}
    assert vars(parser.parse_args(words)) == empty | found


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["relu", "-o"], "unrecognized arguments: -o"),
        (["relu", "--wieghts", "1"], "Did you mean '--weights'"),
        (["relu", "--weights", "--json"], "argument --weights: expected one argument"),
        (["relu", "-3"], "unrecognized arguments: -3"),
    ],
)
def test_what_is_no_value_is_refused(parser, words, sentence):
    with pytest.raises(UsageError, match=sentence.replace("?", "[?]")):
        parser.parse_args(words)
